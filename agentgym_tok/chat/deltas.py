"""What a turn says while it is still being drawn, in pieces that clients understand."""

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentgym_tok.types import AssistantMessage, CallStatus

__all__ = ["CallArguments", "CallBegun", "CallEnded", "Prose", "ReasoningDelta", "Said", "TextDelta", "TurnDelta"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Hold the next piece of what is said outside reasoning and calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Hold the next piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Say that a call has begun; a call that nothing names never does.

    Args:
        index: Place among the turn's calls, from 0.
        name: The tool.
        id: The call's id where the dialect has one and writes it before the arguments; else empty, and whoever serves
            the client gives it one.
    """

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Hold the next piece of a call's arguments, as JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """Say how a call ended, also one that never began."""

    index: int
    status: CallStatus


TurnDelta: TypeAlias = TextDelta | ReasoningDelta | CallBegun | CallArguments | CallEnded


class Prose:
    """Turn bytes that arrive in pieces into text without what is stripped around it.

    Half a character waits until it is whole, and blanks wait for what follows them.

    Args:
        heading: A first line that is left out where it is the whole text or has more lines below it.
        blanks: The characters that are stripped behind; None strips whitespace.
    """

    def __init__(self, heading: str = "", blanks: str | None = None) -> None:
        self._heading = heading
        self._blanks = blanks
        self._told: list[str] = []
        self._joint = ""
        self.restart()

    def restart(self, joint: str = "") -> None:
        """Begin another part, which stands behind the joint where anything stands before it."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[str] = []
        self._inside = False
        if self._told:
            self._joint = joint

    def push(self, raw: bytes, *, final: bool = False) -> str:
        """Take the next bytes, or the final ones, and return the text that is certain now."""
        text = self._decoder.decode(raw, final)
        body = text.rstrip(self._blanks)
        if not body:
            if self._inside:
                self._held.append(text)
            return ""
        blanks = text[len(body) :]
        body = "".join([*self._held, body]) if self._inside else body.lstrip()
        if not body:
            return ""
        self._inside = True
        if self._heading:
            line = f"{self._heading}\n"
            if line.startswith(body):
                self._held = [body, blanks]
                return ""
            body, self._heading = (body.removeprefix(line).lstrip() if body.startswith(line) else body), ""
        self._held = [blanks]
        self._told.append(self._joint + body)
        self._joint = ""
        return self._told[-1]

    def tell(self, text: str) -> None:
        """Note text that is told without having been pushed."""
        self._told.append(text)

    def rest(self, whole: str) -> str:
        """Return what is not told yet of the whole text."""
        told = "".join(self._told)
        assert whole.startswith(told), f"told {told[-80:]!r} of {whole[:80]!r}"
        return whole[len(told) :]


class Said:
    """Collect what is certain of a turn, and tell each piece once.

    Calls are told one after the other.
    """

    def __init__(self) -> None:
        self._deltas: list[TurnDelta] = []
        self._content = Prose()
        self._reasoning = Prose()
        self._parts = 0
        self._ended = 0
        self._begun = self._argued = False

    def text(self, raw: bytes) -> None:
        """Take bytes of the content."""
        self._add(self._content.push(raw), TextDelta)

    def reason(self, raw: bytes) -> None:
        """Take bytes of the reasoning."""
        self._add(self._reasoning.push(raw), ReasoningDelta)

    def leave_out(self, heading: str) -> None:
        """Leave out a line above the reasoning."""
        self._reasoning = Prose(heading)

    def next_text(self) -> None:
        """Begin another part of the content, on a line of its own."""
        self._add(self._content.push(b"", final=True), TextDelta)
        self._content.restart("\n")

    def next_reasoning(self) -> None:
        """Begin another part of the reasoning, on a line of its own even where the one before is empty."""
        self._add(self._reasoning.push(b"", final=True), ReasoningDelta)
        self._reasoning.restart()
        self._parts += 1
        if self._parts > 1:
            self._reasoning.tell("\n")
            self._add("\n", ReasoningDelta)

    def begin(self, name: str, id_: str = "") -> None:
        """Name the next call; without a name nothing begins."""
        if name and not self._begun:
            self._begun = True
            self._deltas.append(CallBegun(self._ended, name, id_))

    def argue(self, text: str) -> None:
        """Take a piece of the call's arguments; dropped where the call has no name."""
        if self._begun and text:
            self._argued = True
            last = self._deltas[-1] if self._deltas else None
            if isinstance(last, CallArguments):
                text, _ = last.text + text, self._deltas.pop()
            self._deltas.append(CallArguments(self._ended, text))

    def finish(self, name: str, arguments: Mapping[str, Any] | None, id_: str, status: CallStatus) -> None:
        """End the call as it is read in the end, and tell what is not told of it."""
        self.begin(name, id_)
        if arguments is not None and not self._argued:
            self.argue(json.dumps(arguments))
        self._deltas.append(CallEnded(self._ended, status))
        self._ended += 1
        self._begun = self._argued = False

    def close(self, message: AssistantMessage) -> None:
        """Tell what is not told yet of the whole turn."""
        self._add(self._reasoning.rest(message.reasoning or ""), ReasoningDelta)
        self._add(self._content.rest(message.content), TextDelta)
        for call in message.tool_calls[self._ended :]:
            self.finish(call.name, call.arguments, call.id, call.status)

    def take(self) -> list[TurnDelta]:
        """Return what came since the last time."""
        taken, self._deltas = self._deltas, []
        return taken

    def _add(self, text: str, kind: type[TextDelta] | type[ReasoningDelta]) -> None:
        if text:
            last = self._deltas[-1] if self._deltas else None
            if isinstance(last, kind):
                text, _ = last.text + text, self._deltas.pop()
            self._deltas.append(kind(text))
