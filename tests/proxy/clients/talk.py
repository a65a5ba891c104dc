"""One talk for all SDKs: ten turns and more, two calls at once, a client that forgets, and one that goes away."""

from typing import Any, Final

from scripted import Scripted, aborted, kinds, says

from agentgym_tok import Message
from agentgym_tok.trace import Turn

PARALLEL, EDIT, HANG, LAST = 4, 6, 9, 12
"""The turns with two calls, before which the client forgets, that it breaks off, and the number of all of them."""

LOOK: Final = {
    "name": "look",
    "description": "Look at a thing.",
    "parameters": {"type": "object", "properties": {"thing": {"type": "string"}, "times": {"type": "integer"}}},
}


def say(context: str, number: int) -> Message:
    if number == PARALLEL:
        return says("", ("look", {"thing": "a door", "times": 2}), ("look", {"thing": 'a "<b>" 1.5', "times": 3}))
    if number % 2:
        return says(f"It is turn {number}: größer als 😀.")
    return says("Let me look.", ("look", {"thing": f"shelf {number}", "times": number}))


def break_off(opened: Any, policy: Scripted) -> None:
    """Close a stream in the middle of a turn."""
    with opened as events:
        next(iter(events))
        assert policy.hanging.wait(10)


def check_talk(turns: list[Turn], *, attempts: bool) -> None:
    """What happened: plain turns, one that the client forgot before, and one that it broke off and asked for again.

    The same body once more is another attempt at that turn; whole instead of streamed it is a turn of its own, which
    goes on from where the other did.
    """
    sources = [place - 1 if place <= HANG + 1 or not attempts else place - 2 for place in range(LAST)]
    expected: list[tuple[str, int | None]] = [("continuation", source) for source in sources]
    expected[0], expected[EDIT] = ("fresh_prompt", None), ("compaction", EDIT - 1)
    expected[HANG + 1] = ("retry", HANG) if attempts else ("continuation", HANG - 1)
    assert kinds(turns) == expected
    assert aborted(turns) == [turns[HANG]]
    assert all(turn.used for place, turn in enumerate(turns) if place != HANG)
    assert [place for place, turn in enumerate(turns) if turn.facts["delivered"] != "whole"] == [HANG]
