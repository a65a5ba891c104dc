"""Stub conversations: short ones that stand for any past, and end in a turn with a known mark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentgym_tok.types import Message, ToolCall

__all__ = ["MARK", "NAMELESS", "OTHER_MARK", "Stub", "probes_of", "spoken_stub", "stubs_for"]

MARK = "The body of a stub turn."
OTHER_MARK = "Another body, of another length, with 7 figures."
NAMELESS = "the_name_that_nobody_told"


@dataclass(frozen=True, slots=True)
class Stub:
    """Hold a conversation of a user's message and a turn.

    Args:
        mark: What the turn says: its text, or an argument of its last call.
        calls: Names and ids of the tools that it calls.
    """

    mark: str = MARK
    calls: tuple[tuple[str, str], ...] = ()

    def messages(self) -> tuple[Message, ...]:
        """Return the conversation."""
        user = Message("user", "Go on.")
        if not self.calls:
            return user, Message("assistant", self.mark)
        texts = ["x"] * (len(self.calls) - 1) + [self.mark]
        calls = [ToolCall(name, {"text": text}, id_) for (name, id_), text in zip(self.calls, texts, strict=True)]
        return user, Message("assistant", "", tool_calls=tuple(calls))


def spoken_stub() -> Stub:
    """Return the stub whose turn only speaks."""
    return Stub()


def stubs_for(messages: Sequence[Message]) -> Iterator[Stub]:
    """Yield stubs that may stand before these messages, the most faithful first.

    Tool results follow a turn that called those tools; some templates write only one call a turn, and some have no word
    for calls, so that a turn that speaks must do.
    """
    calls: list[tuple[str, str]] = []
    for message in messages:
        if message.role != "tool":
            break
        calls.append((message.name or NAMELESS, message.tool_call_id or NAMELESS))
    if calls:
        yield Stub(calls=tuple(calls))
        if len(calls) > 1:
            yield Stub(calls=tuple(calls[-1:]))
    yield spoken_stub()


def probes_of(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Return messages of the same kinds with one known word each, and the words."""
    words = [f"word{place}word" for place in range(len(messages))]
    probes = [
        Message(
            message.role,
            word,
            name=None if message.name is None else f"tool{place}",
            tool_call_id=None if message.tool_call_id is None else f"call{place:05}",
        )
        for place, (message, word) in enumerate(zip(messages, words, strict=True))
    ]
    return probes, words
