"""Requests of OpenAI's chat completions (`POST /v1/chat/completions`; package openai 3.57)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from agentgym_tok.proxy.wire.ask import Ask, Image, named_tools, read_image
from agentgym_tok.proxy.wire.openai_chat_reply import Stream, reply_body
from agentgym_tok.proxy.wire.openai_errors import error_body
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

NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "bad_words": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "ignore_eos": (False,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (0,),
    "repetition_penalty": (1,),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "web_search_options": (),
}
"""Fields that would change the answer, of OpenAI and of servers that copy it, with the values that change nothing."""


def _texts(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


class _Url(AskPart):
    url: str


class _Part(Part):
    refusal: str | None = None
    image_url: _Url | None = None


class _Function(AskPart):
    name: str
    arguments: str = ""


class _Call(AskPart):
    id: str
    type: str = "function"
    function: _Function | None = None


class _Message(AskPart):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    function_call: JsonObject | None = None
    audio: JsonObject | None = None


class _Tool(AskPart):
    type: str = "function"
    function: Schema | None = None


class _StreamOptions(AskPart):
    include_usage: bool | None = None


class _Format(AskPart):
    type: str


class _Body(AskPart):
    model: str
    messages: list[_Message] = Field(min_length=1)
    tools: list[_Tool] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_texts)] = None
    n: int | None = Field(default=None, ge=1, le=128)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    return_token_ids: bool | None = None
    seed: Seed | None = None
    user: str | None = None
    metadata: JsonObject | None = None
    response_format: _Format | None = None


def parse(body: bytes) -> Ask:
    """Read a request.

    Raises:
        BadAsk: It is none, or asks for what cannot be kept.
    """
    asked, replaced = read_ask(_Body, body)
    refuse_set(asked, NEUTRAL)
    if asked.response_format is not None and asked.response_format.type != "text":
        raise BadAsk("structured output is not supported", where="response_format", expected='{"type": "text"}')
    notes = Notes()
    notes.extras(asked)
    tools = read_tools([(tool.type, tool.function) for tool in asked.tools or ()], notes, "function")
    choice, name = read_tool_choice(asked.tool_choice, tools)
    reader = _Reader(notes)
    messages = [reader.read(message, f"messages[{place}]") for place, message in enumerate(asked.messages)]
    longest = {asked.max_tokens, asked.max_completion_tokens} - {None}
    if len(longest) > 1:
        raise BadAsk("max_tokens and max_completion_tokens differ", where="max_tokens", fix="leave max_tokens out")
    given = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": 0 if asked.top_k == -1 else asked.top_k,  # what vLLM writes for every token
        "max_tokens": next(iter(longest), None),
        "stop": None if asked.stop is None else tuple(dict.fromkeys(asked.stop)),
    }
    names = {"max_tokens": "max_tokens" if asked.max_tokens is not None else "max_completion_tokens"}
    return Ask(
        protocol="openai_chat",
        model=asked.model,
        messages=named_tools(messages),
        tools=tools,
        tool_choice=choice,
        tool_name=name,
        parallel_tool_calls=asked.parallel_tool_calls,
        sampling=read_sampling(given, names),
        n=asked.n or 1,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        logprobs=bool(asked.logprobs),
        top_logprobs=asked.top_logprobs or 0,
        token_ids=bool(asked.return_token_ids),
        seed=asked.seed,
        user=asked.user,
        metadata=asked.metadata or {},
        images=tuple(reader.parts.images),
        ignored=notes.names,
        replaced=replaced,
    )


class _Reader:
    """Read messages, and collect the images that they show."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.parts = PartReader(notes, "messages[].content[].", {"text": "text", "refusal": "refusal"}, _image)

    def read(self, message: _Message, where: str) -> Message:
        """Read one message.

        Raises:
            BadAsk: Its role is unknown, or a part of it cannot be shown to the policy.
        """
        self._notes.extras(message, "messages[].")
        match message.role:
            case "system" | "developer":
                text, _ = self.parts.read(message.content, f"{where}.content")
                return Message("system", text, name=message.name, trusted=True)
            case "user":
                text, images = self.parts.read(message.content, f"{where}.content", images=True)
                return Message("user", text, name=message.name, images=images)
            case "assistant":
                return self._assistant(message, where)
            case "tool":
                if message.tool_call_id is None:
                    raise BadAsk("a tool message must name its call", where=f"{where}.tool_call_id")
                text, images = self.parts.read(message.content, f"{where}.content", images=True)
                return Message("tool", text, tool_call_id=message.tool_call_id, name=message.name, images=images)
        expected = "system, developer, user, assistant or tool"
        raise BadAsk("this role is unknown", where=f"{where}.role", got=message.role, expected=expected)

    def _assistant(self, message: _Message, where: str) -> Message:
        for name in ("function_call", "audio"):
            if getattr(message, name) is not None:
                raise BadAsk(f"{name} is not supported", where=f"{where}.{name}")
        text, _ = self.parts.read(message.content, f"{where}.content", between="")
        calls = tuple(self._call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls or ()))
        reasoning = message.reasoning_content or message.reasoning
        return Message("assistant", text + (message.refusal or ""), tool_calls=calls, reasoning=reasoning)

    def _call(self, call: _Call, where: str) -> ToolCall:
        if call.type != "function" or call.function is None:
            raise BadAsk("only calls of functions are supported", where=where, got=call.type)
        self._notes.extras(call, "messages[].tool_calls[].")
        return read_call(call.id, call.function.name, call.function.arguments)


def _image(part: _Part, where: str) -> Image | None:
    return None if part.image_url is None else read_image(part.image_url.url, f"{where}.image_url.url")
