"""When a bank of skills grows, and the record of what was asked and answered."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.proposals import Refused
from agentgym_tok.skills.skill import Skill
from agentgym_tok.tokens import Context
from agentgym_tok.types import Completion, Sampling

__all__ = ["Asked", "Grown", "Growth"]


class Growth(Config):
    """Set when and how a bank grows; the first two numbers are SkillRL's."""

    threshold: float = Field(default=0.4, ge=0, le=1, description="a category with a success rate below it gets skills")
    new: int = Field(default=3, ge=1, description="most new skills of a category in one go")
    most: int = Field(default=12, ge=1, description="most grown skills that a category ever holds")
    failures: int = Field(default=4, ge=1, description="failed episodes that are shown, of different tasks if possible")
    steps: int = Field(default=12, ge=1, description="last steps of each that are shown")
    prompt_tokens: int = Field(default=4096, ge=1, description="longest prompt; episodes are left out until it fits")
    sampling: Sampling = Field(default=Sampling(max_tokens=768), description="how the proposals are drawn")


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Record one question for new skills, and what came of it.

    Args:
        category: Name of the category; empty for tasks that belong to none, whose skills become general.
        rate: Share of its episodes that succeeded.
        episodes: Ids of the failed episodes that were shown.
        context: What the policy was sent; None where no prompt was short enough.
        completion: What it answered; None where it failed.
        text: The answer, decoded, without its reasoning.
        added: New skills.
        refused: What was proposed and not taken, or why nothing was.
    """

    category: str
    rate: float
    episodes: tuple[str, ...]
    context: Context | None = None
    completion: Completion | None = None
    text: str = ""
    added: tuple[Skill, ...] = ()
    refused: tuple[Refused, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values, without ids of tokens."""
        return {
            "category": self.category,
            "rate": self.rate,
            "episodes": list(self.episodes),
            "context_digest": None if self.context is None else self.context.digest,
            "engine": None if self.completion is None else self.completion.engine,
            "text": self.text,
            "added": [skill.published() for skill in self.added],
            "refused": [{"reason": one.reason, "said": one.said} for one in self.refused],
        }


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """Hold a bank that grew.

    Args:
        bank: The new bank; equal to the old one where nothing was added.
        asked: One record for each category that was asked about.
    """

    bank: SkillBank
    asked: tuple[Asked, ...] = ()
