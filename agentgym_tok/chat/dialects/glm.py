"""GLM-4.5 and later: the name, then keys and values in elements of their own.

    <tool_call>name
    <arg_key>key</arg_key>
    <arg_value>value</arg_value>
    </tool_call>

Later templates (GLM-4.7) leave out the newlines. Texts stand bare, other values as JSON.
"""

from collections.abc import Sequence

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body
from agentgym_tok.chat.dialects.early_calls import Members
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["GLM"]

_ELEMENTS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_ARGUMENT = tuple(text.encode() for text in _ELEMENTS)


def _read(turn: TurnText, start: int, end: int, inner: Sequence[Mark], tools: Tools) -> Body:
    elements = [mark for mark in inner if mark.text in _ARGUMENT]
    name = turn.text(start, elements[0].start if elements else end).strip()
    if not name:
        return Body("", None, "missing_name")
    arguments = {}
    for first in range(0, len(elements), 4):
        argument = elements[first : first + 4]
        behind = elements[first + 4].start if first + 4 < len(elements) else end
        if tuple(mark.text for mark in argument) != _ARGUMENT:
            return Body(name, None, "malformed")
        key_opener, key_closer, opener, closer = argument
        if turn.raw[key_closer.end : opener.start].strip() or turn.raw[closer.end : behind].strip():
            return Body(name, None, "malformed")
        key = turn.text(key_opener.end, key_closer.start).strip()
        arguments[key] = tools.value(name, key, turn.text(opener.end, closer.start))
    return Body(name, arguments, "ok")


class _Arriving(Members):
    def __init__(self, said: Said, tools: Tools) -> None:
        super().__init__(said, tools)
        self._piece: list[bytes] = []
        self._marks = 0
        self._key = ""

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        self._piece.append(raw)

    def mark(self, raw: bytes) -> None:
        """Take an inner delimiter; each of an argument's four ends what stands before it."""
        if self._broken or raw not in _ARGUMENT:
            self.text(raw)
            return
        piece = b"".join(self._piece)
        self._piece = []
        text, turn = piece.decode("utf-8", "replace"), self._marks % 4
        self._broken = raw != _ARGUMENT[turn]
        if self._marks == 0:
            self._name = text.strip()
            self._said.begin(self._name)
        elif turn == 1:
            self._key = text.strip()
        elif turn == 3 and not self._broken:
            self._tell(self._key, self._tools.value(self._name, self._key, text))
        elif piece.strip():
            self._broken = True
        self._marks += 1


GLM = BlockDialect(
    "glm", (("<arg_key>", "<arg_value>"),), ("<tool_call>", "</tool_call>"), _read, _Arriving, inner=_ELEMENTS
)
