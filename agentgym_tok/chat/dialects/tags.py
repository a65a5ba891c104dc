"""Plain tags such as `<search>...</search>`, which worlds ask for in their prompts."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["Tag", "read_tags"]


@dataclass(frozen=True, slots=True)
class Tag:
    """Hold one tagged block of a turn.

    Args:
        name: The tag's name.
        text: What stands between opener and closer, whitespace around it stripped.
        tokens: Half-open range of token positions in the turn, opener and closer included.
        closed: The closer stands there.
    """

    name: str
    text: str
    tokens: tuple[int, int]
    closed: bool = True


def read_tags(turn: TurnText, names: Sequence[str]) -> tuple[Tag, ...]:
    """Return the tagged blocks of a turn, in order and apart from each other.

    A block reaches to the next closer of its name, and what is tagged inside it is its text; so naming `think` too
    keeps out what is only thought of. An opener without a closer reaches to the next opener, or to the end of the turn.

    Args:
        turn: The turn.
        names: The tags' names, without brackets.
    """
    closers: dict[bytes, Mark] = {}
    blocks: list[tuple[Mark, Mark | None, int]] = []
    following = turn.end  # where the next opener begins
    for mark in reversed(turn.marks(_openers_and_closers(tuple(names)))):
        if mark.text.startswith(b"</"):
            closers[b"<" + mark.text[2:]] = mark
        else:
            blocks.append((mark, closers.get(mark.text), following))
            following = mark.start
    found: list[Tag] = []
    place = 0
    for opener, closer, following in reversed(blocks):
        if opener.start >= place:
            inner, place = (following, following) if closer is None else (closer.start, closer.end)
            text, tokens = turn.text(opener.end, inner).strip(), turn.tokens(opener.start, place)
            found.append(Tag(opener.text[1:-1].decode(), text, tokens, closed=closer is not None))
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _openers_and_closers(names: tuple[str, ...]) -> re.Pattern[bytes]:
    spelled = "|".join(map(re.escape, names)) or "(?!)"
    return re.compile(f"</?(?:{spelled})>".encode())
