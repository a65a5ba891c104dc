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

from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body
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


QWEN_XML = BlockDialect(
    "qwen_xml", (("<tool_call>", "<function=", "<parameter="),), ("<tool_call>", "</tool_call>"), _read
)
