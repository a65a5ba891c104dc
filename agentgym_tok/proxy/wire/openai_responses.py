"""Requests of OpenAI's responses (`POST /v1/responses`; package openai 3.57)."""

from itertools import groupby
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from agentgym_tok.proxy.wire.ask import Ask, Image, named_tools, read_image
from agentgym_tok.proxy.wire.openai_chat import NEUTRAL
from agentgym_tok.proxy.wire.openai_errors import error_body
from agentgym_tok.proxy.wire.openai_responses_reply import Stream, reply_body
from agentgym_tok.proxy.wire.parts import Part, PartReader
from agentgym_tok.proxy.wire.reading import (
    AskPart,
    BadAsk,
    JsonObject,
    Notes,
    Seed,
    read_ask,
    read_sampling,
    refuse_set,
)
from agentgym_tok.proxy.wire.tools import Schema, read_call, read_tool_choice, read_tools
from agentgym_tok.types import Message, ToolCall

__all__ = ["Stream", "error_body", "parse", "reply_body"]

_NEUTRAL: Final = {**NEUTRAL, "background": (False,), "conversation": (), "prompt": (), "stop": ([],), "n": (1,)}
_LOGPROBS: Final = "message.output_text.logprobs"
_TEXTS: Final = dict.fromkeys(("text", "input_text", "output_text", "reasoning_text"), "text") | {"refusal": "refusal"}
_ASSISTANTS: Final = frozenset({"reasoning", "function_call"})


def _items(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class _Part(Part):
    refusal: str | None = None
    image_url: str | None = None


class _Item(AskPart):
    type: str = "message"
    role: str | None = None
    content: str | list[_Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[_Part] | None = None

    @property
    def side(self) -> str:
        """Whose turn the item belongs to: `assistant`, or what stands alone."""
        return "assistant" if self.type in _ASSISTANTS or self.role == "assistant" else ""


class _Tool(AskPart):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: JsonObject | None = None


class _Format(AskPart):
    type: str


class _Text(AskPart):
    format: _Format | None = None


class _Body(AskPart):
    model: str
    input: Annotated[list[_Item], BeforeValidator(_items)] = Field(default_factory=list)
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    include: list[str] | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    seed: Seed | None = None
    user: str | None = None
    metadata: JsonObject | None = None
    text: _Text | None = None


def parse(body: bytes) -> Ask:
    """Read a request; one that names an earlier answer needs `Ask.after`.

    Items of an assistant that follow each other are one message, whatever answers they came from.

    Raises:
        BadAsk: It is none, or asks for what cannot be kept.
    """
    asked, replaced = read_ask(_Body, body)
    refuse_set(asked, _NEUTRAL)
    if asked.text is not None and asked.text.format is not None and asked.text.format.type != "text":
        raise BadAsk("structured output is not supported", where="text.format", expected='{"type": "text"}')
    if not asked.input and asked.previous_response_id is None:
        raise BadAsk("there is nothing to answer", where="input", expected="a text or a list of items")
    notes = Notes()
    notes.extras(asked)
    if asked.text is not None:
        notes.extras(asked.text, "text.")
    tools = read_tools([(tool.type, _schema(tool, notes)) for tool in asked.tools or ()], notes, "name")
    choice, name = read_tool_choice(asked.tool_choice, tools)
    reader = _Reader(notes)
    lead = [] if not asked.instructions else [Message("system", asked.instructions, trusted=True)]
    include = asked.include or []
    for one in include:
        if one != _LOGPROBS:
            notes.add(f"include {one}")
    given = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "max_tokens": asked.max_output_tokens,
    }
    return Ask(
        protocol="openai_responses",
        model=asked.model,
        messages=named_tools([*lead, *reader.read(asked.input)]),
        tools=tools,
        tool_choice=choice,
        tool_name=name,
        parallel_tool_calls=asked.parallel_tool_calls,
        sampling=read_sampling(given, {"max_tokens": "max_output_tokens"}),
        stream=bool(asked.stream),
        include_usage=True,
        logprobs=_LOGPROBS in include,
        top_logprobs=asked.top_logprobs or 0,
        seed=asked.seed,
        user=asked.user,
        metadata=asked.metadata or {},
        previous_response_id=asked.previous_response_id,
        lead=len(lead),
        images=tuple(reader.parts.images),
        ignored=notes.names,
        replaced=replaced,
    )


def _schema(tool: _Tool, notes: Notes) -> Schema | None:
    if tool.type != "function" or not tool.name:
        return None
    notes.extras(tool, "tools[].")
    return Schema(name=tool.name, description=tool.description, parameters=tool.parameters)


class _Reader:
    """Read items, and collect the images that they show."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.parts = PartReader(notes, "input[].content[].", _TEXTS, _image)

    def read(self, items: list[_Item]) -> list[Message]:
        """Read a conversation.

        Raises:
            BadAsk: An item is of a kind that cannot be shown to the policy.
        """
        messages: list[Message] = []
        for side, placed in groupby(enumerate(items), lambda one: one[1].side):
            group = list(placed)
            for _, item in group:
                self._notes.extras(item, "input[].")
            if side == "assistant":
                messages.append(self._assistant(group))
            else:
                messages.extend(self._other(item, f"input[{place}]") for place, item in group)
        return messages

    def _assistant(self, group: list[tuple[int, _Item]]) -> Message:
        content, reasoning, calls = "", "", list[ToolCall]()
        for place, item in group:
            where = f"input[{place}]"
            match item.type:
                case "message":
                    content += self.parts.read(item.content, f"{where}.content", between="")[0]
                case "reasoning":
                    reasoning += self.parts.read(item.content, f"{where}.content", between="")[0]
                case "function_call":
                    calls.append(_call(item, where))
                case _:
                    raise _unknown(item, where)
        return Message("assistant", content, tool_calls=tuple(calls), reasoning=reasoning or None)

    def _other(self, item: _Item, where: str) -> Message:
        match (item.type, item.role):
            case ("message", "system" | "developer"):
                return Message("system", self.parts.read(item.content, f"{where}.content")[0], trusted=True)
            case ("message", "user"):
                text, images = self.parts.read(item.content, f"{where}.content", images=True)
                return Message("user", text, images=images)
            case ("function_call_output", _) if item.call_id:
                text, images = self.parts.read(item.output, f"{where}.output", images=True)
                return Message("tool", text, tool_call_id=item.call_id, name=item.name, images=images)
        raise _unknown(item, where)


def _call(item: _Item, where: str) -> ToolCall:
    if not item.call_id or not item.name:
        raise BadAsk("a call needs a name and a call_id", where=where)
    return read_call(item.call_id, item.name, item.arguments)


def _unknown(item: _Item, where: str) -> BadAsk:
    return BadAsk(
        "this item is not supported",
        where=where,
        got=item.type if item.role is None else f"{item.type} of the role {item.role}",
        expected="messages, reasoning, function_call or function_call_output",
        fix="send items whole and not by reference" if item.type == "item_reference" else None,
    )


def _image(part: _Part, where: str) -> Image | None:
    return None if part.image_url is None else read_image(part.image_url, f"{where}.image_url")
