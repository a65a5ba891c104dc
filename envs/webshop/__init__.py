"""WebShop: buy what an instruction asks for, in a shop of many products."""

from agentgym_tok.envs.webshop.catalogue import Catalogue
from agentgym_tok.envs.webshop.engine import WebShopEngine
from agentgym_tok.envs.webshop.env import WebShopEnv
from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.nouns import TitleNouns, spacy_tagger
from agentgym_tok.envs.webshop.products import Product
from agentgym_tok.envs.webshop.reward import Reward
from agentgym_tok.envs.webshop.shop import Shop
from agentgym_tok.envs.webshop.splits import PRESETS, split_goals

__all__ = [
    "PRESETS",
    "Catalogue",
    "Goal",
    "Product",
    "Reward",
    "Shop",
    "TitleNouns",
    "WebShopEngine",
    "WebShopEnv",
    "spacy_tagger",
    "split_goals",
]
