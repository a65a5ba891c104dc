"""SkillRL's JSON form of a skill bank, which SDAR's repository holds too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import DataCorrupt
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.files import not_valid, read_json, write_text
from agentgym_tok.skills.skill import Category, Mistake, Skill

__all__ = ["CategoryKey", "read_published", "write_published"]

CategoryKey: TypeAlias = Literal["task_specific_skills", "query_type_skills"]
"""The two names that published files have for the skills by category: ALFWorld's and WebShop's, and Search-QA's."""


class _Matching(Config):
    types: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


class _File(Config):
    """The file as it stands; a misspelt section is refused, since its skills would be missing silently."""

    model_config = ConfigDict(extra="forbid")

    general_skills: tuple[Skill, ...] = ()
    task_specific_skills: dict[str, tuple[Skill, ...]] = Field(default_factory=dict)
    query_type_skills: dict[str, tuple[Skill, ...]] = Field(default_factory=dict)
    common_mistakes: tuple[Mistake, ...] = ()
    matching: dict[str, _Matching] = Field(default_factory=dict)
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)


def read_published(path: Path) -> SkillBank:
    """Read a bank from JSON.

    Skills by category may stand under either key, or under both. Our own files add `matching`: the kinds of task and
    the keywords of each category.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: It is no skill bank.
    """
    try:
        file = _File.model_validate(read_json(path, "skill bank"))
        categories = [*file.task_specific_skills.items(), *file.query_type_skills.items()]
        unknown = file.matching.keys() - dict(categories).keys()
        if unknown:
            raise DataCorrupt(
                "the skill bank matches tasks to skills that it does not hold",
                where=f"{path}: matching",
                got=", ".join(sorted(unknown)),
                expected=f"some of {', '.join(dict(categories)) or 'no category'}",
            )
        return SkillBank(
            general_skills=file.general_skills,
            categories=tuple(
                Category(name=name, skills=skills, **dict(file.matching.get(name, _Matching())))
                for name, skills in categories
            ),
            common_mistakes=file.common_mistakes,
            metadata=file.metadata,
        )
    except ValidationError as error:
        raise not_valid(error, "skill bank", path) from error


def write_published(bank: SkillBank, path: Path, key: CategoryKey = "task_specific_skills") -> None:
    """Write a bank as JSON; `read_published` gives it back.

    Args:
        bank: The bank.
        path: The file; an older one is replaced.
        key: Where the skills by category stand.

    Raises:
        ConfigError: The file cannot be written.
    """
    content: dict[str, Any] = {
        "general_skills": [skill.published() for skill in bank.general_skills],
        key: {one.name: [skill.published() for skill in one.skills] for one in bank.categories},
        "common_mistakes": [mistake.published() for mistake in bank.common_mistakes],
        "matching": {one.name: {"types": one.types, "keywords": one.keywords} for one in bank.categories},
        "metadata": dict(bank.metadata),
    }
    write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
