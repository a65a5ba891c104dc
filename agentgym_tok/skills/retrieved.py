"""What retrieval returns, and the protocol of what retrieves."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.matching import SkillQuery
from agentgym_tok.skills.skill import Category, Mistake, Skill

__all__ = ["Retrieved", "Retriever", "retrieved"]


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Hold the skills for one task.

    Args:
        query: The task.
        skills: The general skills, and those of the chosen categories.
        mistakes: Mistakes to warn of.
        categories: Names of the chosen categories; empty where none fits.
        text: All of it, as it stands in a prompt; text of whoever wrote the bank, so that it is not trusted.
    """

    query: SkillQuery
    skills: tuple[Skill, ...]
    mistakes: tuple[Mistake, ...]
    categories: tuple[str, ...]
    text: str


@runtime_checkable
class Retriever(Protocol):
    """Choose skills for tasks."""

    name: str
    bank: SkillBank

    def retrieve(self, query: SkillQuery) -> Retrieved:
        """Return the skills for a task."""
        ...

    def update(self, found: Retrieved, reward: float) -> None:
        """Tell what an episode that had these skills returned; most rules do not listen."""
        ...


def retrieved(bank: SkillBank, query: SkillQuery, categories: Iterable[Category], mistakes: int) -> Retrieved:
    """Return the general skills with those of some categories.

    Args:
        bank: The bank.
        query: The task.
        categories: Some of the bank's.
        mistakes: Most mistakes to warn of, the bank's first ones.
    """
    chosen = tuple(categories)
    skills = (*bank.general_skills, *(skill for category in chosen for skill in category.skills))
    warned = bank.common_mistakes[:mistakes]
    names = tuple(category.name for category in chosen)
    return Retrieved(query, skills, warned, names, bank.render(skills, warned))
