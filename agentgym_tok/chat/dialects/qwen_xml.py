"""Qwen3-Coder and Qwen3.5: XML-like elements, one a parameter, between `<tool_call>` and `</tool_call>`.

    <tool_call>
    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>
    </tool_call>

Values are bare text with one newline on either side. Nothing is escaped, so a value may hold anything that does not
read like the next parameter; one that holds `<parameter=` could be two values, and is `malformed`.
"""

import re
from collections.abc import Sequence

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body
from agentgym_tok.chat.dialects.early_calls import Members
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["QWEN_XML"]

_FUNCTION = re.compile(r"\s*<function=([^<>]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>]*)>\n?")
_PARAMETER_END = re.compile(r"\n?</parameter>\s*+(?=<parameter=|\Z)")


def _read(turn: TurnText, start: int, end: int, _inner: Sequence[Mark], tools: Tools) -> Body:
    text = turn.text(start, end)
    opener = _FUNCTION.match(text)
    if opener is None:
        return Body("", None, "malformed")
    name = opener[1].strip()
    if not name:
        return Body("", None, "missing_name")
    rest = text[opener.end() :].rstrip()
    if not rest.endswith("</function>"):
        return Body(name, None, "malformed")
    parameters = _parameters(rest.removesuffix("</function>"))
    if parameters is None:
        return Body(name, None, "malformed")
    return Body(name, {key: tools.value(name, key, value) for key, value in parameters.items()}, "ok")


def _parameters(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    place = 0
    while (opener := _PARAMETER.match(text, place)) is not None:
        closer = _PARAMETER_END.search(text, opener.end())
        if closer is None:
            return None
        value = text[opener.end() : closer.start()]
        if "<parameter=" in value:
            return None
        found[opener[1].strip()] = value
        place = closer.end()
    return None if text[place:].strip() else found


class _Arriving(Members):
    _OPENER = b"<parameter="

    def __init__(self, said: Said, tools: Tools) -> None:
        super().__init__(said, tools)
        self._piece = bytearray()
        self._opened = False

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        searched = len(self._piece)
        self._piece += raw
        if not self._name and not self._broken:
            end = self._piece.find(b">", searched) + 1
            if end == 0:
                return
            found = _FUNCTION.match(self._piece[:end].decode("utf-8", "replace"))
            self._name = "" if found is None else found[1].strip()
            self._broken = not self._name
            self._said.begin(self._name)
            del self._piece[:end]
            searched = 0
        searched = max(0, searched - len(self._OPENER) + 1)
        while not self._broken and (place := self._piece.find(self._OPENER, searched)) >= 0:
            self._parameter(self._piece[:place].decode("utf-8", "replace"))
            del self._piece[:place]
            searched = 1

    def _parameter(self, text: str) -> None:
        """Tell what stands before an opener; only the end of the call tells where its last parameter ends."""
        parameters = _parameters(text) if self._opened else ({} if not text.strip() else None)
        self._opened = True
        self._broken = parameters is None
        for key, value in (parameters or {}).items():
            self._tell(key, self._tools.value(self._name, key, value))


QWEN_XML = BlockDialect(
    "qwen_xml", (("<tool_call>", "<function=", "<parameter="),), ("<tool_call>", "</tool_call>"), _read, _Arriving
)
