"""SDAR's markdown form of a skill bank: a folder with one file for each category, and a mapping."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, DataCorrupt
from agentgym_tok.skills.bank import RESERVED, SkillBank
from agentgym_tok.skills.files import not_valid, read_json, read_text, write_text
from agentgym_tok.skills.items import Item, read_items, write_items
from agentgym_tok.skills.skill import Category, Mistake, Skill

__all__ = ["MAPPING", "read_markdown", "write_markdown"]

MAPPING = "skill_mapping.json"
_GENERAL, _MISTAKES = RESERVED


class _Mapping(Config):
    model_config = ConfigDict(extra="forbid")

    skill_files: dict[str, str]
    task_to_skill: dict[str, str] = Field(default_factory=dict)
    task_keywords: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)


def read_markdown(folder: Path) -> SkillBank:
    """Read a bank from a folder of markdown files.

    `skill_mapping.json` says which file holds what (`skill_files`; the general skills are called `general_skills`),
    which kinds of task a file is for (`task_to_skill`), and by which words these are known (`task_keywords`). Each item
    of a list is a skill: `1. Title: what to do`. Headings, and lines that end in a colon, only introduce; any other
    paragraph is a skill without a title.

    Raises:
        DataMissing: The mapping, or a file that it names, is not there.
        DataCorrupt: The mapping is none, or names what does not exist.
    """
    path = folder / MAPPING
    try:
        mapping = _Mapping.model_validate(read_json(path, "mapping of skills"))
        _check(mapping, path)
        items = {
            name: read_items(read_text(folder / file, "file of skills")) for name, file in mapping.skill_files.items()
        }
        return SkillBank(
            general_skills=tuple(_skills(_GENERAL, items.pop(_GENERAL, ()))),
            common_mistakes=tuple(_mistakes(items.pop(_MISTAKES, ()))),
            categories=tuple(_category(name, found, mapping) for name, found in items.items()),
            metadata=mapping.metadata,
        )
    except ValidationError as error:
        raise not_valid(error, "skill bank", path) from error


def write_markdown(bank: SkillBank, folder: Path) -> None:
    """Write a bank as markdown files; `read_markdown` gives it back.

    The mapping is written last, and files of an older bank that it does not name are left where they are.

    Args:
        bank: The bank.
        folder: The folder; made where it does not exist.

    Raises:
        ConfigError: A file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("the folder cannot be made", where=folder, got=error.strerror, fix="name another") from error
    sections = {_GENERAL: map(_skill_item, bank.general_skills)}
    sections |= {one.name: map(_skill_item, one.skills) for one in bank.categories}
    sections[_MISTAKES] = map(_mistake_item, bank.common_mistakes)
    for name, items in sections.items():
        write_text(folder / f"{name}.md", write_items(name.replace("_", " ").capitalize(), items))
    content = {
        "skill_files": {name: f"{name}.md" for name in sections},
        "task_to_skill": {type_: one.name for one in bank.categories for type_ in one.types},
        "task_keywords": {one.types[0]: one.keywords for one in bank.categories if one.keywords},
        "metadata": dict(bank.metadata),
    }
    write_text(folder / MAPPING, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _check(mapping: _Mapping, path: Path) -> None:
    for name, file in mapping.skill_files.items():
        if Path(file).name != file:
            raise DataCorrupt(
                "a file of skills is outside its bank", where=f"{path}: skill_files.{name}", got=file, expected="a name"
            )
    for key, names, known in (
        ("task_to_skill", mapping.task_to_skill.values(), mapping.skill_files),
        ("task_keywords", mapping.task_keywords, mapping.task_to_skill),
    ):
        for name in names:
            if name not in known:
                expected = ", ".join(known) or "none is named"
                raise DataCorrupt("unknown name in the mapping", where=f"{path}: {key}", got=name, expected=expected)


def _category(name: str, items: Iterable[Item], mapping: _Mapping) -> Category:
    types = tuple(type_ for type_, file in mapping.task_to_skill.items() if file == name)
    keywords = dict.fromkeys(keyword for type_ in types for keyword in mapping.task_keywords.get(type_, ()))
    return Category(name=name, skills=tuple(_skills(name, items)), types=types, keywords=tuple(keywords))


def _skills(section: str, items: Iterable[Item]) -> Iterator[Skill]:
    for number, item in enumerate(items, 1):
        fields: dict[str, Any] = {"skill_id": f"{section}_{number:03}", **item.note}
        fields |= {"title": item.title, "principle": item.text, "when_to_apply": item.labels.get("When", "")}
        yield Skill(**fields)


def _skill_item(skill: Skill) -> Item:
    labels = {"When": skill.when_to_apply} if skill.when_to_apply else {}
    return Item(skill.title, skill.principle, labels, _note("skill_id", skill))


def _mistakes(items: Iterable[Item]) -> Iterator[Mistake]:
    for number, item in enumerate(items, 1):
        fields: dict[str, Any] = {"mistake_id": f"mistake_{number:03}", **item.note}
        fields |= {
            "description": item.title or item.text,
            "how_to_avoid": item.text,
            "why_it_happens": item.labels.get("Why", ""),
        }
        yield Mistake(**fields)


def _mistake_item(mistake: Mistake) -> Item:
    labels = {"Why": mistake.why_it_happens} if mistake.why_it_happens else {}
    return Item(mistake.description, mistake.how_to_avoid, labels, _note("mistake_id", mistake))


def _note(key: str, entry: Skill | Mistake) -> dict[str, Any]:
    return {name: value for name, value in entry.published().items() if name in (key, "episodes")}
