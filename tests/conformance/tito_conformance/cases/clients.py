"""Cases in which the client sends another history than it was told."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from tito_conformance.cases.shapes import (
    SEARCH,
    call,
    im_tool,
    im_user,
    kimi_tool,
    kimi_user,
    says,
    schema,
    step,
    tool,
    user,
)
from tito_conformance.script import Case, Edit

__all__ = ["CLIENTS"]

History: TypeAlias = list[dict[str, Any]]

_END = says("That is all.<|im_end|>")


def _each_call(change: Callable[[dict[str, Any]], None]) -> Edit:
    def edit(history: History) -> History:
        for message in history:
            for made in message.get("tool_calls") or ():
                change(made)
        return history

    return edit


def _compact(made: dict[str, Any]) -> None:
    arguments = json.loads(made["function"]["arguments"])
    made["function"]["arguments"] = json.dumps(arguments, separators=(",", ":"))


def _repaired(made: dict[str, Any]) -> None:
    made["function"] |= {"name": "search", "arguments": '{"query": "green tea"}'}


def _own_ids(history: History) -> History:
    """Rename the ids of calls, as harnesses do that mint their own."""
    for message in history:
        for made in message.get("tool_calls") or ():
            made["id"] = made["id"].replace("functions.search:", "call_8f3a")
        if "tool_call_id" in message:
            message["tool_call_id"] = message["tool_call_id"].replace("functions.search:", "call_8f3a")
    return history


def _without_first_exchange(history: History) -> History:
    return [history[0], *history[3:]]


def _system(day: str) -> dict[str, Any]:
    return {"role": "system", "content": f"You are terse. It is {day}."}


def _other_system(history: History) -> History:
    return [_system("Tuesday"), *history[1:]]


_KIMI_CALL = says(
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>",
    '{"query": "tea"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>',
)
_KIMI_ID = "functions.search:0"


def _reversed(tool_schema: dict[str, Any]) -> dict[str, Any]:
    function = dict(reversed(tool_schema["function"].items()))
    return dict(reversed({**tool_schema, "function": function}.items()))


CLIENTS = (
    Case(
        "7",
        "one space in the arguments of a call",
        "openenv graph.py; opencode",
        "tiny-chatml",
        ("arguments",),
        (
            step(user("Run x."), says(call('{"command": "x"}', "shell"), "<|im_end|>")),
            step(
                tool("done"),
                says(call('{"command":"y"}', "shell"), "<|im_end|>"),
                im_tool("done"),
                edit=_each_call(_compact),
            ),
            step(tool("done"), _END, im_tool("done"), edit=_each_call(_compact)),
        ),
        tools=(schema("shell", command="string"),),
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "23",
        "the client renames the ids of calls",
        "kimchi #1066; vLLM #50782; mlx-lm #821",
        "tiny-kimi",
        ("call_id",),
        (
            step(user("Find tea."), _KIMI_CALL),
            step(tool("3 shops"), _END, kimi_tool("3 shops", _KIMI_ID), edit=_own_ids),
        ),
        tools=(SEARCH,),
    ),
    Case(
        "24",
        "ids of calls repeat and history is windowed",
        "sglang #33343; fireconnect #16",
        "tiny-kimi",
        ("history_edit", "call_id"),
        (
            step(user("Find tea, twice."), _KIMI_CALL),
            step(tool("first"), _KIMI_CALL, kimi_tool("first", _KIMI_ID)),
            step(tool("second"), _END, kimi_tool("second", _KIMI_ID)),
            step(user("More."), _KIMI_CALL, kimi_user("More.")),
            step(
                tool("third"),
                _END,
                edit=_without_first_exchange,
                edited=True,
                shows=("second", "third"),
                hides=("first",),
            ),
        ),
        tools=(SEARCH,),
        best="reported",
    ),
    Case(
        "32",
        "tools change in mid-run",
        "verifiers PR #955; ART tool normaliser",
        "tiny-chatml",
        ("tools_swap",),
        (
            step(user("Hello."), says("Hello.<|im_end|>")),
            # Another order of keys is the same schema.
            step(user("More."), _END, im_user("More."), tools=(_reversed(SEARCH),)),
            step(user("And?"), _END, tools=(SEARCH, schema("look")), edited=True, shows=('"look"', "And?")),
        ),
        tools=(SEARCH,),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "33",
        "the client renders its system prompt anew",
        "openenv export.py; claude-code",
        "tiny-chatml",
        ("system_swap",),
        (
            step([_system("Monday"), user("Hello.")], says("Hello.<|im_end|>")),
            step(user("More."), _END, edit=_other_system, edited=True, shows=("Tuesday", "More."), hides=("Monday",)),
        ),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "36",
        "the client repairs a call that was never sampled so",
        "renderers README; opencode experimental_repairToolCall",
        "tiny-chatml",
        ("history_edit", "arguments"),
        (
            step(user("Find tea."), says(call('{"q": "green tea"}', "Search"), "<|im_end|>")),
            # What the engine shall see, the sampled call or the repaired one, is the gateway's choice; silence is none.
            step(tool("3 shops"), _END, edit=_each_call(_repaired), edited=True, shows=("3 shops",)),
        ),
        tools=(SEARCH,),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
)
