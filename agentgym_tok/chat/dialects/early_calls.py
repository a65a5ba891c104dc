"""Bodies of calls while they arrive: the name and the arguments as soon as they are certain.

What is told here comes early and nothing more: how a call ends is read by its dialect once the call is whole. So these
readers may be generous with what is no call in the end, and may leave everything to the end.
"""

import codecs
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_tok.chat.deltas import Prose, Said
from agentgym_tok.chat.dialects.tools import Tools, decode_json

__all__ = ["ArrivingBody", "JsonArguments", "JsonEnd", "JsonFunction", "Members", "Separated"]


class ArrivingBody(ABC):
    """Tell a call while its body arrives.

    Args:
        said: Where to tell it.
        tools: The tools.
    """

    def __init__(self, said: Said, tools: Tools) -> None:
        self._said = said
        self._tools = tools
        self._broken = False  # it says nothing more early

    @abstractmethod
    def text(self, raw: bytes) -> None:
        """Take the next text."""

    def mark(self, raw: bytes) -> None:
        """Take an inner delimiter; most are text."""
        self.text(raw)

    def finish(self, arguments: Mapping[str, Any] | None) -> None:  # noqa: B027  # few tell more at the end
        """Tell what is left of the arguments; None where they cannot be read."""


class JsonEnd:
    """Find where a JSON string, object or array ends that arrives in pieces, as `json_end` does."""

    _OUTSIDE = re.compile(rb'["{}\[\]]')
    _INSIDE = re.compile(rb'["\\]')

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def push(self, raw: bytes) -> int | None:
        """Take the next bytes and return where in them the value ends; None where it goes on."""
        place = 0
        while place < len(raw):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            match = (self._INSIDE if self._quoted else self._OUTSIDE).search(raw, place)
            if match is None:
                return None
            place = match.end()
            if match[0] == b"\\":
                self._escaped = True
            elif match[0] == b'"':
                self._quoted = not self._quoted
            else:
                self._depth += 1 if match[0] in b"{[" else -1
            if not self._quoted and self._depth <= 0:
                return place
        return None


class JsonArguments(ArrivingBody):
    """Tell arguments that are a JSON object of their own, as they come.

    Args:
        said: Where to tell it.
        tools: The tools.
        before: Matches what may stand before the object, and its brace.
        blanks: What may stand behind it and is left out; None for whitespace.
    """

    def __init__(self, said: Said, tools: Tools, before: str = r"\s*\{", blanks: str | None = None) -> None:
        super().__init__(said, tools)
        self._before = re.compile(before)
        self._prose = Prose(blanks=blanks)
        self._head: list[str] | None = []

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        text = "" if self._broken else self._prose.push(raw)
        if self._head is not None and text:
            self._head.append(text)
            if "{" not in text:
                return
            head, self._head = "".join(self._head), None
            self._broken = self._before.match(head) is None
            text = head[head.index("{") :]
        if not self._broken:
            self._said.argue(text)


class JsonFunction(ArrivingBody):
    """Tell a call that is one JSON object, once its name stands there; arguments that come first wait for it.

    Args:
        said: Where to tell it.
        tools: The tools.
        keys: Where the arguments stand; only those of the first key are told as they come.
        certain: An object with a name is a call; else it needs one of the keys too.
    """

    _BLANK = re.compile(rb"[ \t\n\r,:]*")

    def __init__(self, said: Said, tools: Tools, keys: Sequence[str] = ("arguments",), *, certain: bool = True) -> None:
        super().__init__(said, tools)
        self._keys = keys
        self._certain = certain
        self._key = self._name = ""
        self._waiting: list[str] = []
        self._step: Callable[[bytes], bytes] = self._open

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        while raw and not self._broken:
            raw = self._step(raw)

    def _stop(self) -> bytes:
        self._broken = True
        return b""

    def _open(self, raw: bytes) -> bytes:
        raw = raw.lstrip()
        if not raw:
            return b""
        self._step = self._before_key
        return raw[1:] if raw.startswith(b"{") else self._stop()

    def _before_key(self, raw: bytes) -> bytes:
        raw = self._behind_blanks(raw)
        if not raw:
            return b""
        self._piece: list[bytes] = []
        self._end = JsonEnd()
        self._step = self._in_key
        return raw if raw.startswith(b'"') else self._stop()

    def _in_key(self, raw: bytes) -> bytes:
        stop = self._collect(raw)
        if stop is None:
            return b""
        self._key = _string(b"".join(self._piece))
        self._certain |= self._key in self._keys
        self._step = self._before_value
        return raw[stop:]

    def _before_value(self, raw: bytes) -> bytes:
        raw = self._behind_blanks(raw)
        if not raw:
            return b""
        self._end = JsonEnd()
        self._piece = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if self._key == self._keys[0] and raw.startswith(b"{"):
            self._step = self._in_arguments
        else:
            self._step = self._in_value if raw[:1] in {b'"', b"{", b"["} else self._in_scalar
        return raw

    def _in_arguments(self, raw: bytes) -> bytes:
        stop = self._end.push(raw)
        self._waiting.append(self._decoder.decode(raw[:stop]))
        self._tell()
        if stop is None:
            return b""
        self._step = self._before_key
        return raw[stop:]

    def _in_value(self, raw: bytes) -> bytes:
        stop = self._collect(raw)
        if stop is None:
            return b""
        if self._key == "name":
            self._name = self._name or _string(b"".join(self._piece))
        self._tell()
        self._step = self._before_key
        return raw[stop:]

    def _in_scalar(self, raw: bytes) -> bytes:
        comma = raw.find(b",")
        if comma < 0:
            return b""
        self._step = self._before_key
        return raw[comma:]

    def _collect(self, raw: bytes) -> int | None:
        stop = self._end.push(raw)
        self._piece.append(raw[:stop])
        return stop

    def _behind_blanks(self, raw: bytes) -> bytes:
        match = self._BLANK.match(raw)
        return raw if match is None else raw[match.end() :]

    def _tell(self) -> None:
        if self._name and self._certain:
            self._said.begin(self._name)
            self._said.argue("".join(self._waiting))
            self._waiting = []


def _string(raw: bytes) -> str:
    try:
        value = decode_json(raw.decode("utf-8", "replace"))
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


class Separated(ArrivingBody):
    """Tell calls whose arguments stand behind a separator.

    Attributes:
        separator: The separator; each dialect has its own.
    """

    separator: bytes

    def __init__(self, said: Said, tools: Tools) -> None:
        super().__init__(said, tools)
        self._before: list[bytes] | None = []
        self._arguments: ArrivingBody | None = None

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        if self._before is not None:
            self._before.append(raw)
        elif self._arguments is not None:
            self._arguments.text(raw)

    def mark(self, raw: bytes) -> None:
        """Take an inner delimiter; the first separator is one."""
        if self._before is None or raw != self.separator:
            self.text(raw)
            return
        before, self._before = b"".join(self._before).decode("utf-8", "replace").strip(), None
        self._arguments = self._behind(before)

    @abstractmethod
    def _behind(self, before: str) -> ArrivingBody | None:
        """Return what reads the text behind the separator; None where the call names nothing."""


class Members(ArrivingBody):
    """Tell arguments that the dialect writes one by one, each as a member of a JSON object."""

    def __init__(self, said: Said, tools: Tools) -> None:
        super().__init__(said, tools)
        self._name = ""
        self._told: dict[str, str] = {}

    def _tell(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        self._said.argue(f"{', ' if self._told else '{'}{json.dumps(key)}: {text}")
        self._told[key] = text

    def finish(self, arguments: Mapping[str, Any] | None) -> None:
        """Tell the members that are left; the last of a key counts."""
        if arguments is not None:
            for key, value in arguments.items():
                if self._told.get(key) != json.dumps(value):
                    self._tell(key, value)
            self._said.argue("}" if self._told else "{}")
