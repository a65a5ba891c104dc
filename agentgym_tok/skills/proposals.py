"""Reading skills that a model proposes, and judging them; nothing that it says is an error here."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agentgym_tok.skills.skill import Skill

__all__ = ["Refused", "judge", "parse_proposals", "similar"]

_DECODER = json.JSONDecoder(strict=False)
_OPENERS = re.compile(r"[\[{]")
_ALIKE = 0.8
_LONGEST_TITLE, _LONGEST_PRINCIPLE = 120, 800


@dataclass(frozen=True, slots=True)
class Refused:
    """Say why something proposed is no new skill.

    Args:
        reason: Why.
        said: What was proposed, shortened.
    """

    reason: str
    said: str


def parse_proposals(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that a text holds, in order.

    Prose and fences around them are skipped, lists and objects that hold lists of objects are opened, and of a list
    that breaks off the objects before the break are kept.
    """
    found: list[dict[str, Any]] = []
    place = 0
    while opener := _OPENERS.search(text, place):
        try:
            value, place = _DECODER.raw_decode(text, opener.start())
        except (ValueError, RecursionError):
            place = opener.end()
        else:
            found += _objects(value)
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (inner for inner in value if isinstance(inner, dict))
    elif "principle" in value:
        yield value
    else:
        lists = [inner for inner in value.values() if isinstance(inner, list)]
        yield from (one for inner in lists for one in _objects(inner))


def judge(proposal: dict[str, Any], skill_id: str, episodes: Iterable[str], known: Iterable[Skill]) -> Skill | Refused:
    """Return the skill that is proposed, or why it is none.

    Args:
        proposal: An object with `title`, `principle` and `when_to_apply`.
        skill_id: The id that it gets.
        episodes: Ids of the episodes that it was learned from.
        known: Skills that it must not repeat.
    """
    said = json.dumps(proposal, ensure_ascii=True)[:400]
    fields = {name: proposal[name] for name in ("title", "principle", "when_to_apply") if name in proposal}
    try:
        skill = Skill(**fields, skill_id=skill_id, episodes=tuple(episodes))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return Refused(f"it is no skill: {'.'.join(map(str, first['loc']))}: {first['msg']}", said)
    if not skill.title or len(skill.title) > _LONGEST_TITLE or len(skill.principle) > _LONGEST_PRINCIPLE:
        limits = f"1 to {_LONGEST_TITLE} characters and at most {_LONGEST_PRINCIPLE}"
        return Refused(f"its title and principle must have {limits}", said)
    twin = next((other for other in known if similar(skill, other)), None)
    return skill if twin is None else Refused(f"it says what {twin.skill_id} says", said)


def similar(one: Skill, other: Skill) -> bool:
    """Tell whether two skills say the same: equal titles, or principles that share four of five words or more."""
    if one.title and _words(one.title) == _words(other.title):
        return True
    mine, others = set(_words(one.principle)), set(_words(other.principle))
    return len(mine & others) >= _ALIKE * max(1, len(mine | others))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
