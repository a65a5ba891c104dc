"""ALFWorld: household tasks in a text world."""

from agentgym_tok.envs.alfworld.download import get_alfworld
from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game, GameSet, SingleGame
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.alfworld.synth import SynthGames
from agentgym_tok.envs.alfworld.textworld import StockEngine

__all__ = [
    "TASK_TYPES",
    "ALFWorldEngine",
    "Game",
    "GameSet",
    "OfficialGames",
    "SingleGame",
    "StockEngine",
    "SynthGames",
    "get_alfworld",
]
