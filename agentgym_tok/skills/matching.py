"""Which tasks a word is about: matching by whole words, so that "pan" is not in "panel" nor "hat" in "that"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from agentgym_tok.skills.skill import Category
from agentgym_tok.trace import Episode

__all__ = ["SkillQuery", "has_keyword", "has_type", "of_kind"]

# A word ends where neither a letter nor a digit follows: the underscore parts words, as in `pick_heat_then_place`.
_BEFORE, _AFTER = r"(?<![^\W_])", r"(?![^\W_])"
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class SkillQuery:
    """Describe the task that skills are wanted for.

    Args:
        text: The task in words, such as the goal. Not a whole prompt: the commands that a prompt lists would match too.
        kinds: What the world calls it, the best name first: a kind of task, a dataset, a task id.
        key: Tells random draws for equal tasks apart, such as an episode's id.
    """

    text: str
    kinds: tuple[str, ...] = ()
    key: str = ""

    @classmethod
    def of_info(cls, info: Mapping[str, Any], key: str = "") -> Self:
        """Describe the running task of an environment by its `info`: `goal`, `task_type` and `task`."""
        kinds = tuple(str(info[name]) for name in ("task_type", "task") if info.get(name))
        return cls(str(info.get("goal") or ""), kinds, key)

    @classmethod
    def of_episode(cls, episode: Episode) -> Self:
        """Describe the task of a recorded episode by its id and by what its world said first."""
        steps = episode.steps
        said = steps[0].facts.get("anchor") if steps else None
        return cls(str(said or ""), (episode.head.task,), episode.id)


def has_keyword(text: str, keyword: str) -> bool:
    """Tell whether a text holds a keyword.

    Args:
        text: Any text; case does not matter.
        keyword: Words that follow each other, each a whole word of the text; the last one may stand in its regular
            plural. `...` between words stands for any others: `which ... or`.
    """
    return _keyword(keyword).search(text) is not None


def has_type(kind: str, type_: str) -> bool:
    """Tell whether the name of a kind of task, or a task id, holds the words of a type one after the other.

    So `pick_and_place` is in `pick_and_place_simple-Pencil-None-Dresser-330`, and `clean` in
    `pick_clean_then_place_in_recep`.
    """
    pattern = _type(type_)
    return pattern is not None and pattern.search(kind) is not None


def of_kind(categories: tuple[Category, ...], kind: str) -> Category | None:
    """Return the category with the longest type in the name of a kind; among equals the first in the bank's order."""
    found = [(len(type_), category) for category in categories for type_ in category.types if has_type(kind, type_)]
    return max(found, key=lambda pair: pair[0])[1] if found else None


@lru_cache(maxsize=4096)
def _keyword(keyword: str) -> re.Pattern[str]:
    parts = [part.split() for part in keyword.split("...")]
    found = [
        _BEFORE + r"\s+".join([*map(re.escape, words[:-1]), _plural(words[-1])]) + _AFTER for words in parts if words
    ]
    return re.compile(".*?".join(found) or r"(?!)", re.IGNORECASE | re.DOTALL)


def _plural(word: str) -> str:
    if word.lower().endswith("y"):
        return f"{re.escape(word[:-1])}(?:y|ys|ies)"
    return f"{re.escape(word)}(?:s|es)?"


@lru_cache(maxsize=4096)
def _type(type_: str) -> re.Pattern[str] | None:
    words = _WORD.findall(type_)
    if not words:
        return None
    return re.compile(_BEFORE + r"[\W_]+".join(map(re.escape, words)) + _AFTER, re.IGNORECASE)
