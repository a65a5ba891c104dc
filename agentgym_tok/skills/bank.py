"""The skills of a world, read-only, and named by their content."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import Field, JsonValue, model_validator

from agentgym_tok.config import Config
from agentgym_tok.skills.matching import SkillQuery, has_keyword, of_kind
from agentgym_tok.skills.rendering import render
from agentgym_tok.skills.skill import Category, Mistake, Skill

__all__ = ["RESERVED", "SkillBank"]

RESERVED = ("general_skills", "common_mistakes")
"""Names of sections, which no category may have."""


class SkillBank(Config):
    """Hold general skills, skills by category of task, and mistakes (SkillRL, arXiv 2602.08234).

    Equal banks have one `digest`; `load_bank` and `save_bank` read and write them.
    """

    general_skills: tuple[Skill, ...] = ()
    categories: tuple[Category, ...] = ()
    common_mistakes: tuple[Mistake, ...] = ()
    metadata: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="notes about the bank; not in the digest"
    )

    def __hash__(self) -> int:
        return hash(self.digest)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [category.name.casefold() for category in self.categories]
        _no_twins("category", [*RESERVED, *names])
        _no_twins("type", (type_.casefold() for category in self.categories for type_ in category.types))
        _no_twins("skill_id in general_skills", (skill.skill_id for skill in self.general_skills))
        for category in self.categories:
            _no_twins(f"skill_id in {category.name}", (skill.skill_id for skill in category.skills))
        _no_twins("mistake_id", (mistake.mistake_id for mistake in self.common_mistakes))
        return self

    @property
    def digest(self) -> str:
        """Name of the content in 32 hex digits: skills, mistakes and matching, without metadata and provenance."""
        content = self.model_dump(mode="json", exclude={"metadata"})
        for entry in (*content["general_skills"], *content["common_mistakes"]):
            del entry["episodes"]
        for category in content["categories"]:
            for entry in category["skills"]:
                del entry["episodes"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def skills(self) -> tuple[Skill, ...]:
        """All skills, the general ones first."""
        return (*self.general_skills, *(skill for category in self.categories for skill in category.skills))

    def category(self, name: str) -> Category | None:
        """Return the category of this name; None where there is none."""
        return next((category for category in self.categories if category.name == name), None)

    def match(self, query: SkillQuery) -> tuple[Category, ...]:
        """Return the categories that a task belongs to, in the bank's order.

        What the world calls the task decides: the first of `query.kinds` that holds a type of a category, in whole
        words; the longest such type. Only where none does, every category with a keyword in `query.text` is returned
        (`has_keyword`).
        """
        for kind in query.kinds:
            category = of_kind(self.categories, kind)
            if category is not None:
                return (category,)
        return tuple(
            category
            for category in self.categories
            if any(has_keyword(query.text, keyword) for keyword in category.keywords)
        )

    def with_skills(self, added: Mapping[str, Iterable[Skill]]) -> Self:
        """Return a bank with more skills.

        Args:
            added: New skills by category; those of the empty name are general.
        """
        categories = [
            Category(**{**dict(category), "skills": (*category.skills, *added.get(category.name, ()))})
            for category in self.categories
        ]
        general = (*self.general_skills, *added.get("", ()))
        return type(self)(**{**dict(self), "general_skills": general, "categories": categories})

    def render(self, skills: Iterable[Skill], mistakes: Iterable[Mistake] = ()) -> str:
        """Write skills for a prompt: one section for the general ones, one for each category, one for mistakes.

        Args:
            skills: Some of the bank's; each stands once, in the bank's order.
            mistakes: Mistakes to warn of.

        Returns:
            The text without a final newline; empty where there is nothing to say. It may come from a model, so that it
            is no trusted text.
        """
        wanted = set(skills)
        chosen: list[tuple[str, list[Skill]]] = []
        for name, held in (("general", self.general_skills), *((one.name, one.skills) for one in self.categories)):
            chosen.append((name, [skill for skill in held if skill in wanted]))
            wanted.difference_update(held)
        return render(chosen, list(mistakes))


def _no_twins(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name!r} stands twice, or is a section's own name")
        seen.add(name)
