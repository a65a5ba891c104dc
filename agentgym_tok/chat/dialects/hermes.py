"""Hermes and Qwen: a JSON object with `name` and `arguments` between `<tool_call>` and `</tool_call>`.

Written by the templates of Hermes 2 and 3, Qwen2.5 and Qwen3, and by the builtin one.
"""

from collections.abc import Sequence

from agentgym_tok.chat.dialects.blocks import BlockDialect
from agentgym_tok.chat.dialects.dialect import Body, function_of
from agentgym_tok.chat.dialects.early_calls import JsonFunction
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import Mark, TurnText

__all__ = ["HERMES"]


def _read(turn: TurnText, start: int, end: int, _inner: Sequence[Mark], _tools: Tools) -> Body:
    return function_of(turn.text(start, end).strip())


HERMES = BlockDialect("hermes", (("<tool_call>",),), ("<tool_call>", "</tool_call>"), _read, JsonFunction)
