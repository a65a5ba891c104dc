"""Skills: what helped with tasks before, as context that a teacher has and its student lacks."""

from agentgym_tok.skills.asked import Asked, Grown, Growth
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.growth import grow
from agentgym_tok.skills.matching import SkillQuery, has_keyword, has_type
from agentgym_tok.skills.proposals import Refused
from agentgym_tok.skills.retrieval import RETRIEVERS, Full, Keyword, Random, make_retriever
from agentgym_tok.skills.retrieved import Retrieved, Retriever
from agentgym_tok.skills.skill import Category, Mistake, Skill
from agentgym_tok.skills.storage import SHIPPED, load_bank, save_bank
from agentgym_tok.skills.ucb import Arm, Ucb, UcbStatistics, ucb_score

__all__ = [
    "RETRIEVERS",
    "SHIPPED",
    "Arm",
    "Asked",
    "Category",
    "Full",
    "Grown",
    "Growth",
    "Keyword",
    "Mistake",
    "Random",
    "Refused",
    "Retrieved",
    "Retriever",
    "Skill",
    "SkillBank",
    "SkillQuery",
    "Ucb",
    "UcbStatistics",
    "grow",
    "has_keyword",
    "has_type",
    "load_bank",
    "make_retriever",
    "save_bank",
    "ucb_score",
]
