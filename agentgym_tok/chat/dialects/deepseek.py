# ruff: noqa: RUF001, RUF002  # the tokens are written with this bar
r"""DeepSeek V3, R1 and V3.1: the name, a separator, and a JSON object.

    <｜tool▁call▁begin｜>function<｜tool▁sep｜>name\n```json\n{...}\n```<｜tool▁call▁end｜>       V3, R1
    <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>                                V3.1

All calls of a turn stand between `<｜tool▁calls▁begin｜>` and `<｜tool▁calls▁end｜>`.
"""

from collections.abc import Sequence

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body, arguments_of
from agentgym_tok.chat.dialects.early_calls import ArrivingBody, JsonArguments, Separated
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["DEEPSEEK"]

_SEPARATOR = "<｜tool▁sep｜>"


def _read(turn: TurnText, start: int, end: int, inner: Sequence[Mark], _tools: Tools) -> Body:
    separator = next((mark for mark in inner if mark.text == _SEPARATOR.encode()), None)
    if separator is None:
        return Body("", None, "malformed")
    before, after = turn.text(start, separator.start).strip(), turn.text(separator.end, end).strip()
    name, fence, fenced = after.partition("```")
    if after.startswith("{") or (before != "function" and not fence):
        return arguments_of(before, after)
    if not fenced.endswith("```"):
        return Body(name.partition("\n")[0].strip(), None, "malformed")
    return arguments_of(name.strip(), fenced.removeprefix("json").removesuffix("```").strip())


class _Arriving(Separated):
    separator = _SEPARATOR.encode()

    def _behind(self, before: str) -> ArrivingBody | None:
        return _Arguments(self._said, self._tools, before)


class _Arguments(ArrivingBody):
    """Tell arguments that are bare, or stand in a fence behind their name.

    Args:
        said: Where to tell it.
        tools: The tools.
        name: What stands before the separator: the name where the arguments are bare.
    """

    _FENCE = b"```"
    _BLANKS = "`" + "".join(char for char in map(chr, range(0x3001)) if char.isspace())

    def __init__(self, said: Said, tools: Tools, name: str) -> None:
        super().__init__(said, tools)
        self._name = name
        self._head = bytearray()
        self._arguments: ArrivingBody | None = None

    def text(self, raw: bytes) -> None:
        """Take the next text."""
        if self._arguments is not None:
            self._arguments.text(raw)
            return
        if not self._head:
            raw = raw.lstrip()
        searched = max(0, len(self._head) - len(self._FENCE) + 1)
        self._head += raw
        fence = self._head.find(self._FENCE, searched)
        if self._head.startswith(b"{"):
            self._said.begin(self._name)
            self._arguments = JsonArguments(self._said, self._tools)
            self._arguments.text(bytes(self._head))
        elif fence >= 0:
            name = self._head[:fence].decode("utf-8", "replace").strip()
            # A name of several lines is whole or its first line, as the fence is closed or not; only the end tells.
            self._said.begin("" if "\n" in name or name.startswith("{") else name)
            self._arguments = JsonArguments(self._said, self._tools, r"\s*(?:json)?\s*\{", self._BLANKS)
            self._arguments.text(bytes(self._head[fence + len(self._FENCE) :]))


DEEPSEEK = BlockDialect(
    "deepseek",
    (("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    _read,
    _Arriving,
    inner=(_SEPARATOR,),
    frame=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)
