"""What a skill bank holds: skills, mistakes, and the categories of tasks that skills are for."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from agentgym_tok.config import Config

__all__ = ["Category", "Line", "Mistake", "Skill", "Words"]

_SURROGATES = re.compile("[\ud800-\udfff]")


def _one_line(text: str) -> str:
    return " ".join(_SURROGATES.sub("\ufffd", text).split())


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("there are no words")
    return text


Line = Annotated[str, AfterValidator(_one_line)]
"""Text of one line: every run of white space is one blank, and what no file can hold is U+FFFD."""

Words = Annotated[Line, AfterValidator(_not_empty)]
"""A `Line` that says something."""


class _Entry(Config):
    # Other programs write fields of their own into these records; a bank is read all the same.
    model_config = ConfigDict(extra="ignore")

    episodes: tuple[str, ...] = Field(default=(), description="ids of the episodes that it was learned from")

    def published(self) -> dict[str, Any]:
        """Return the record in the published form; the provenance stands there only where there is one."""
        return self.model_dump(mode="json", exclude=set() if self.episodes else {"episodes"})


class Skill(_Entry):
    """Say how something is done; the fields have the names of SkillRL's files."""

    skill_id: Words = Field(description="unique among the skills of its section")
    title: Line = Field(default="", description="a few words")
    principle: Words = Field(description="what to do")
    when_to_apply: Line = Field(default="", description="the situation that it is for")


class Mistake(_Entry):
    """Say what went wrong before; the fields have the names of SkillRL's files."""

    mistake_id: Words = Field(description="unique among the mistakes")
    description: Words = Field(description="what was done")
    why_it_happens: Line = Field(default="", description="its cause")
    how_to_avoid: Words = Field(description="what to do instead")


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


_Names = Annotated[tuple[Words, ...], AfterValidator(_once)]


class Category(Config):
    """Hold the skills for one kind of task, and say which tasks are of that kind."""

    name: str = Field(pattern=r"^[\w-]+$", description="also the name of its file")
    skills: tuple[Skill, ...] = ()
    types: _Names = Field(default=(), description="kinds of task, as worlds call them; by default the name")
    keywords: _Names = Field(default=(), description="words of a task; `SkillBank.match` says how they match")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("types") and isinstance(given.get("name"), str):
            return {**given, "types": (given["name"],)}
        return given
