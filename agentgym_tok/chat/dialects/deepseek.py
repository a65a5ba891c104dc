# ruff: noqa: RUF001, RUF002  # the tokens are written with this bar
r"""DeepSeek V3, R1 and V3.1: the name, a separator, and a JSON object.

    <｜tool▁call▁begin｜>function<｜tool▁sep｜>name\n```json\n{...}\n```<｜tool▁call▁end｜>       V3, R1
    <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>                                V3.1

All calls of a turn stand between `<｜tool▁calls▁begin｜>` and `<｜tool▁calls▁end｜>`.
"""

from collections.abc import Sequence

from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body, arguments_of
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


DEEPSEEK = BlockDialect(
    "deepseek",
    (("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    _read,
    inner=(_SEPARATOR,),
    frame=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)
