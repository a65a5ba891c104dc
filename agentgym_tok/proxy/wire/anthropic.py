"""Requests of Anthropic's messages (`POST /v1/messages`, `/v1/messages/count_tokens`; package anthropic 2.14)."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from pydantic import Field

from agentgym_tok.proxy.wire.anthropic_reply import Stream, error_body, reply_body
from agentgym_tok.proxy.wire.ask import Ask, Image, ToolChoice, named_tools, read_base64_image, read_image
from agentgym_tok.proxy.wire.parts import Part, PartReader
from agentgym_tok.proxy.wire.reading import AskPart, BadAsk, JsonObject, Notes, read_ask, read_sampling, refuse_set
from agentgym_tok.proxy.wire.reply import json_bytes
from agentgym_tok.proxy.wire.tools import Schema, read_tools
from agentgym_tok.types import Message, Sampling, ToolCall

__all__ = ["Stream", "count_body", "error_body", "parse", "parse_count", "reply_body"]

_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {"container": (), "mcp_servers": ([],), "output_format": ()}


class _Source(AskPart):
    type: str
    media_type: str = ""
    data: str | None = None
    url: str | None = None


class _Block(Part):
    source: _Source | None = None
    id: str | None = None
    name: str | None = None
    input: JsonObject | None = None
    tool_use_id: str | None = None
    content: "str | list[_Block] | None" = None
    thinking: str | None = None
    signature: str | None = None


class _Message(AskPart):
    role: str
    content: str | list[_Block]


class _Tool(AskPart):
    type: str | None = None
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: JsonObject | None = None


class _Choice(AskPart):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Config(AskPart):
    format: JsonObject | None = None


class _Metadata(AskPart):
    user_id: str | None = None


class _Count(AskPart):
    model: str
    messages: list[_Message] = Field(min_length=1)
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    output_config: _Config | None = None


class _Body(_Count):
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: _Metadata | None = None


def parse(body: bytes) -> Ask:
    """Read a request for a turn.

    Raises:
        BadAsk: It is none, or asks for what cannot be kept.
    """
    asked, replaced = read_ask(_Body, body)
    given = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "max_tokens": asked.max_tokens,
        "stop": None if asked.stop_sequences is None else tuple(dict.fromkeys(asked.stop_sequences)),
    }
    sampling = read_sampling(given, {"stop": "stop_sequences"})
    user = None if asked.metadata is None else asked.metadata.user_id
    return _ask(asked, replaced, sampling, stream=bool(asked.stream), user=user)


def parse_count(body: bytes) -> Ask:
    """Read a request for the number of tokens of a context.

    Raises:
        BadAsk: It is none, or asks for what cannot be counted.
    """
    asked, replaced = read_ask(_Count, body)
    return _ask(asked, replaced, Sampling(), stream=False, user=None)


def count_body(tokens: int) -> bytes:
    """Answer how many tokens a context has."""
    return json_bytes({"input_tokens": tokens})


def _ask(asked: _Count, replaced: int, sampling: Sampling, *, stream: bool, user: str | None) -> Ask:
    refuse_set(asked, _NEUTRAL)
    if asked.output_config is not None and asked.output_config.format is not None:
        raise BadAsk("structured output is not supported", where="output_config.format", fix="leave it out")
    notes = Notes()
    notes.extras(asked)
    if asked.output_config is not None:
        notes.extras(asked.output_config, "output_config.")
    tools = read_tools([(_kind(tool), _schema(tool, notes)) for tool in asked.tools or ()], notes, "input_schema")
    choice, name = _tool_choice(asked.tool_choice, [tool["function"]["name"] for tool in tools])
    lone = asked.tool_choice is not None and asked.tool_choice.disable_parallel_tool_use
    reader = _Reader(notes)
    if asked.system:
        reader.system(asked.system, "system")
    for place, message in enumerate(asked.messages):
        reader.read(message, f"messages[{place}]")
    return Ask(
        protocol="anthropic",
        model=asked.model,
        messages=named_tools(reader.messages),
        tools=tools,
        tool_choice=choice,
        tool_name=name,
        parallel_tool_calls=False if lone else None,
        sampling=sampling,
        stream=stream,
        include_usage=True,
        user=user,
        images=tuple(reader.parts.images),
        signatures=tuple(reader.signatures),
        ignored=notes.names,
        replaced=replaced,
    )


def _kind(tool: _Tool) -> str:
    return "function" if tool.type in {None, "custom"} else str(tool.type)


def _schema(tool: _Tool, notes: Notes) -> Schema | None:
    if _kind(tool) != "function" or tool.input_schema is None:
        return None
    notes.extras(tool, "tools[].")
    return Schema(name=tool.name, description=tool.description, parameters=tool.input_schema)


def _tool_choice(given: _Choice | None, names: list[str]) -> tuple[ToolChoice, str | None]:
    if given is None or given.type == "auto":
        return "auto", None
    if given.type == "none":
        return "none", None
    if given.type == "any" and names:
        return "required", None
    if given.type == "tool" and given.name in names:
        return "tool", given.name
    expected = "auto, none, any or one of the functions in tools"
    raise BadAsk("this tool choice is not supported", where="tool_choice", expected=expected)


class _Reader:
    """Read messages, one after the other."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.messages: list[Message] = []
        self.parts = PartReader(notes, "messages[].content[].", {"text": "text"}, _image)
        self.signatures: list[tuple[int, str]] = []

    def system(self, content: str | list[_Block], where: str) -> None:
        """Read what the system says.

        Raises:
            BadAsk: It is more than text.
        """
        self.messages.append(Message("system", self.parts.read(content, where)[0], trusted=True))

    def read(self, message: _Message, where: str) -> None:
        """Read one message; results of tools are messages of their own.

        Raises:
            BadAsk: Its role is unknown, or a block of it cannot be shown to the policy.
        """
        self._notes.extras(message, "messages[].")
        match message.role:
            case "system":
                self.system(message.content, f"{where}.content")
            case "user":
                self._user(message.content, f"{where}.content")
            case "assistant":
                self._assistant(message.content, f"{where}.content")
            case _:
                expected = "user, assistant or system"
                raise BadAsk("this role is unknown", where=f"{where}.role", got=message.role, expected=expected)

    def _user(self, content: str | list[_Block], where: str) -> None:
        content = content or ""
        if isinstance(content, str):
            self.messages.append(Message("user", content))
            return
        for is_result, run in groupby(enumerate(content), lambda one: one[1].type == "tool_result"):
            placed = list(run)
            if is_result:
                for place, block in placed:
                    self._result(block, f"{where}[{place}]")
            else:
                text, images = self.parts.read([one for _, one in placed], where, start=placed[0][0], images=True)
                self.messages.append(Message("user", text, images=images))

    def _result(self, block: _Block, where: str) -> None:
        if block.tool_use_id is None:
            raise BadAsk("a result must name its call", where=f"{where}.tool_use_id")
        self._notes.extras(block, "messages[].content[].")
        text, images = self.parts.read(block.content, f"{where}.content", images=True)
        self.messages.append(Message("tool", text, tool_call_id=block.tool_use_id, images=images))

    def _assistant(self, said: str | list[_Block], where: str) -> None:
        content, reasoning, calls = "", "", list[ToolCall]()
        if isinstance(said, str):
            content, said = said, []
        for place, block in enumerate(said):
            self._notes.extras(block, "messages[].content[].")
            match block.type:
                case "text" if block.text is not None:
                    content += block.text
                case "thinking" if block.thinking is not None:
                    reasoning += block.thinking
                    if block.signature:
                        self.signatures.append((len(self.messages), block.signature))
                case "redacted_thinking":
                    self._notes.add("messages[].content[] redacted_thinking")
                case "tool_use" if block.id and block.name and block.input is not None:
                    calls.append(ToolCall(block.name, block.input, block.id))
                case _:
                    raise BadAsk(f"a block {block.type!r} is not supported here", where=f"{where}[{place}]")
        self.messages.append(Message("assistant", content, tool_calls=tuple(calls), reasoning=reasoning or None))


def _image(block: _Block, where: str) -> Image | None:
    match block.source:
        case _Source(type="base64", data=str(data), media_type=kind):
            return read_base64_image(data, kind, f"{where}.source")
        case _Source(type="url", url=str(url)):
            return read_image(url, f"{where}.source")
    return None
