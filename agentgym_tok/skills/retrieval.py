"""The retrieval rules of SDAR (arXiv 2605.15155) that learn nothing, and all rules by name.

The paper chooses one file of skills for a task, so every rule here chooses among categories, and the general skills
stand before what is chosen. Of the paper's rules `keyword` and `full` are released; `random` and `ucb` follow its text.
"""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from agentgym_tok.errors import ConfigError
from agentgym_tok.plugins import find_plugin
from agentgym_tok.seeds import derive_seed
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.matching import SkillQuery
from agentgym_tok.skills.retrieved import Retrieved, Retriever, retrieved
from agentgym_tok.skills.ucb import Ucb

__all__ = ["RETRIEVERS", "Full", "Keyword", "Random", "make_retriever"]

_MISTAKES = 5
"""How many mistakes SkillRL puts into a prompt."""


class _Fixed:
    def __init__(self, bank: SkillBank, *, mistakes: int = _MISTAKES) -> None:
        self.bank = bank
        self._mistakes = mistakes

    def update(self, found: Retrieved, reward: float) -> None:
        """Learn nothing."""


class Keyword(_Fixed):
    """Choose the categories that the task belongs to; see `SkillBank.match`.

    SDAR's code looks for keywords anywhere in the whole prompt, so that "hat" is found in "that", and the commands that
    a prompt lists count as well. Here words are whole, and only the task is read.

    Args:
        bank: The skills.
        mistakes: Most mistakes to warn of.
    """

    name = "keyword"

    def retrieve(self, query: SkillQuery) -> Retrieved:
        """Return the skills of the categories that match; the general ones alone where none does."""
        return retrieved(self.bank, query, self.bank.match(query), self._mistakes)


class Full(_Fixed):
    """Choose every category, whatever the task.

    Args:
        bank: The skills.
        mistakes: Most mistakes to warn of.
    """

    name = "full"

    def retrieve(self, query: SkillQuery) -> Retrieved:
        """Return all skills."""
        return retrieved(self.bank, query, self.bank.categories, self._mistakes)


class Random(_Fixed):
    """Choose one category, whatever the task.

    Args:
        bank: The skills.
        mistakes: Most mistakes to warn of.
        seed: Equal seeds choose equally for equal tasks with equal keys, in any order.
    """

    name = "random"

    def __init__(self, bank: SkillBank, *, mistakes: int = _MISTAKES, seed: int = 0) -> None:
        super().__init__(bank, mistakes=mistakes)
        self._seed = seed

    def retrieve(self, query: SkillQuery) -> Retrieved:
        """Return the skills of a category drawn uniformly by seed, task and key."""
        drawn = random.Random(derive_seed(self._seed, "skills", query.text, *query.kinds, query.key))  # noqa: S311
        chosen = [drawn.choice(self.bank.categories)] if self.bank.categories else []
        return retrieved(self.bank, query, chosen, self._mistakes)


_Maker: TypeAlias = Callable[..., Retriever]

RETRIEVERS: Mapping[str, _Maker] = MappingProxyType({"keyword": Keyword, "ucb": Ucb, "full": Full, "random": Random})
"""The rules by name."""


def make_retriever(name: str, bank: SkillBank, **options: Any) -> Retriever:
    """Return a rule by its name.

    Args:
        name: One of `RETRIEVERS`, or a plug-in's.
        bank: The skills.
        options: Those of the rule.

    Raises:
        UnknownName: There is no such rule.
        ConfigError: The rule has no such option, or it cannot have that value; or a plug-in is broken.
    """
    plugin = None if name in RETRIEVERS else find_plugin("skill retriever", name, RETRIEVERS, where="make_retriever")
    make = RETRIEVERS[name] if plugin is None else plugin.load()
    try:
        made: Retriever = make(bank, **options)
    except TypeError as error:
        raise ConfigError("the retrieval rule has no such option", where=name, got=str(error)) from error
    if plugin is not None and not isinstance(made, Retriever):
        raise plugin.broken(type(made).__name__, expected="a skills Retriever: name, bank, retrieve, update")
    return made
