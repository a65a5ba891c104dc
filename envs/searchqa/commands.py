"""The two commands of the world: `search[QUERY]` and `answer[TEXT]`."""

import re
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Asked", "Verb", "command", "read_command"]

Verb: TypeAlias = Literal["search", "answer"]

_COMMAND = re.compile(r"(search|answer)\[(.*)\]", re.DOTALL | re.IGNORECASE)


class Asked(NamedTuple):
    """Hold what a command asks for.

    Args:
        verb: What to do.
        text: The query, or the answer.
    """

    verb: Verb
    text: str


def command(verb: str, text: str) -> str:
    """Return the command in its one form."""
    return f"{verb}[{text.strip()}]"


def read_command(text: str) -> Asked | None:
    """Read a command; None where it is none of the two."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    return Asked("search" if found[1].lower() == "search" else "answer", found[2].strip())
