# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar
"""The words of the cases, and what each family's template writes between a closed turn and the next one."""

from collections.abc import Mapping, Sequence
from typing import Any

from tito_conformance.script import Edit, Fault, JsonMap, Piece, Reply, Step, Text

__all__ = [
    "SEARCH",
    "call",
    "deepseek_tool",
    "glm_tool",
    "glm_user",
    "harmony_user",
    "im_tool",
    "im_user",
    "kimi_tool",
    "kimi_user",
    "llama_user",
    "said",
    "says",
    "schema",
    "step",
    "tool",
    "user",
]


def user(text: str) -> dict[str, Any]:
    """Return what the user says."""
    return {"role": "user", "content": text}


def tool(text: str) -> dict[str, Any]:
    """Return what a tool says; the agent fills in the call that it answers."""
    return {"role": "tool", "content": text}


def schema(name: str, **types: str) -> dict[str, Any]:
    """Return a tool whose parameters have these JSON types."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": f"{name}.", "parameters": parameters}}


SEARCH = schema("search", query="string")


def says(*pieces: Piece, cut: bool = False, stop: str | None = None, fault: Fault | None = None) -> Reply:
    """Return what the engine samples.

    Args:
        pieces: Encoded one by one.
        cut: The token limit ended it.
        stop: The stop string that ended it.
        fault: What the engine does wrong.
    """
    return Reply(pieces, "length" if cut else "stop", stop, fault)


def step(
    new: JsonMap | Sequence[JsonMap],
    reply: Reply,
    *tails: tuple[str, ...],
    opening: tuple[str, ...] | None = None,
    edit: Edit | None = None,
    **more: Any,
) -> Step:
    """Return a step; see `Step` for what it is made of."""
    messages = (new,) if isinstance(new, Mapping) else tuple(new)
    return Step(messages, reply, tails, opening, edit, **more)


def said(*pieces: Piece, closed: bool = True) -> tuple[Step, ...]:
    """Return a short talk in ChatML: the policy says these pieces, then the user goes on.

    Args:
        pieces: What is sampled first.
        closed: The policy also samples the stop token; else the token limit cuts the turn.
    """
    first = says(*pieces, "<|im_end|>") if closed else says(*pieces, cut=True)
    tail = im_user("And then?")
    return (
        step(user("Tell me."), first),
        step(user("And then?"), says("That is all.<|im_end|>"), tail if closed else ("<|im_end|>", *tail)),
    )


def call(arguments: str = '{"query": "tea"}', name: str = "search") -> str:
    """Return a call in the dialect of Hermes."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def im_user(text: str, opened: str = "") -> tuple[str, ...]:
    """Return ChatML's user message; `opened` is what the generation prompt goes on with."""
    return "\n<|im_start|>user\n", Text(text), f"<|im_end|>\n<|im_start|>assistant\n{opened}"


def im_tool(text: str, opened: str = "") -> tuple[str, ...]:
    """Return a tool result as Qwen's templates write it."""
    before, after = "\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    return before, Text(text), after + opened


def glm_user(text: str) -> tuple[str, ...]:
    """Return what follows a turn of GLM that stopped on the next user's role."""
    return "\n", Text(text), "<|assistant|>"


def glm_tool(text: str) -> tuple[str, ...]:
    """Return what follows a turn of GLM that stopped on the tool's role."""
    return "\n<tool_response>\n", Text(text), "\n</tool_response><|assistant|>"


def harmony_user(text: str) -> tuple[str, ...]:
    """Return gpt-oss's user message."""
    return "<|start|>user<|message|>", Text(text), "<|end|><|start|>assistant"


def llama_user(text: str) -> tuple[str, ...]:
    """Return Llama's user message."""
    before, after = "<|start_header_id|>{}<|end_header_id|>\n\n".format, "<|eot_id|>"
    return before("user"), Text(text), after + before("assistant")


def kimi_user(text: str) -> tuple[str, ...]:
    """Return Kimi's user message."""
    return "<|im_user|>user<|im_middle|>", Text(text), "<|im_end|><|im_assistant|>assistant<|im_middle|>"


def kimi_tool(text: str, call_id: str) -> tuple[str, ...]:
    """Return a tool result as Kimi's template writes it, with the id of the call."""
    before, after = "<|im_system|>tool<|im_middle|>## Return of ", "<|im_end|><|im_assistant|>assistant<|im_middle|>"
    return before, Text(call_id), "\n", Text(text), after


def deepseek_tool(text: str) -> tuple[str, ...]:
    """Return a tool result of DeepSeek V3, whose next turn needs no opener."""
    before, after = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>", "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    return before, Text(text), after
