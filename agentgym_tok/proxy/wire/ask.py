"""What a client asks for, the same for every protocol."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from agentgym_tok.proxy.wire.reading import BadAsk
from agentgym_tok.types import Message, Sampling

__all__ = ["Ask", "Image", "Protocol", "ToolChoice", "named_tools", "read_base64_image", "read_image"]

Protocol: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic"]
ToolChoice: TypeAlias = Literal["auto", "none", "required", "tool"]


@dataclass(frozen=True, slots=True)
class Image:
    """Hold an image that a message shows.

    Args:
        sha256: Hex, of the file; of the URL where the client sent no file.
        media_type: Such as `image/png`; empty where only the URL is known.
        body: The file; None where the client sent a URL.
        url: Where it lies; None where the client sent the file. Nobody here fetches it.
    """

    sha256: str
    media_type: str = ""
    body: bytes | None = field(default=None, repr=False)
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Hold one request.

    Args:
        protocol: How the client speaks.
        model: The model's name, as asked.
        messages: The conversation; system messages are trusted, nothing else is. Text parts of an assistant's message
            are joined as they are, those of others by line ends.
        tools: Schemas in the shape of the OpenAI chat API, with name, description and parameters alone.
        tool_choice: What calls the turn may hold; `tool` is the one in `tool_name`.
        tool_name: The tool that must be called.
        parallel_tool_calls: More than one call is welcome; None where the client leaves it open.
        sampling: What the client set, and only that: `sampling.model_fields_set` names it.
        n: Turns to draw.
        stream: Answer in pieces.
        include_usage: A stream ends with the token counts, in protocols that leave the choice.
        logprobs: Answer with each token's log-probability.
        top_logprobs: Likeliest tokens to name at each place.
        token_ids: Answer with the ids of the context and of each choice, where the protocol has a place for them.
        seed: Of the sampling.
        user: Whom the client asks for.
        metadata: The client's own labels.
        previous_response_id: The answer that this request goes on from; its messages are not in `messages`.
        lead: How many of the first messages are instructions of this request alone, which no later one inherits.
        images: What the messages show, in order; they name them by hash.
        signatures: `(message, signature)` of each thinking block that came back.
        ignored: Fields that have no effect here, for the record: `messages[].cache_control`.
        replaced: Lone surrogates that became U+FFFD.
    """

    protocol: Protocol
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    tool_name: str | None = None
    parallel_tool_calls: bool | None = None
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    token_ids: bool = False
    seed: int | None = None
    user: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    previous_response_id: str | None = None
    lead: int = 0
    images: tuple[Image, ...] = ()
    signatures: tuple[tuple[int, str], ...] = ()
    ignored: tuple[str, ...] = ()
    replaced: int = 0

    def sampling_over(self, defaults: Sampling) -> Sampling:
        """Return the parameters in force: what the client set, and the defaults for the rest."""
        own = self.sampling
        return defaults.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})

    def after(self, earlier: Sequence[Message]) -> "Ask":
        """Return the same request with the whole conversation, for one that names the answer that it goes on from.

        Args:
            earlier: The messages up to and including that answer, without the instructions of their time.
        """
        messages = named_tools([*self.messages[: self.lead], *earlier, *self.messages[self.lead :]])
        moved = tuple((place + len(earlier), signature) for place, signature in self.signatures)
        return replace(self, messages=messages, signatures=moved)


def named_tools(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Give each tool message the name of the tool whose call it answers, where the conversation holds that call."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.name is None and message.tool_call_id in names:
            call_id, images = message.tool_call_id, message.images
            named.append(Message("tool", message.content, tool_call_id=call_id, name=names[call_id], images=images))
        else:
            named.append(message)
    return tuple(named)


def read_image(url: str, where: str) -> Image:
    """Read an image that is given as a URL; one of the kind `data:` holds the file.

    Raises:
        BadAsk: It is no URL of an image that can be passed on.
    """
    if url.startswith(("http://", "https://")):
        return Image(hashlib.sha256(url.encode()).hexdigest(), url=url)
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise BadAsk("this is no image", where=where, expected="http:, https: or data:image/TYPE;base64,...")
    return read_base64_image(data, head.removeprefix("data:").removesuffix(";base64").split(";")[0], where)


def read_base64_image(data: str, media_type: str, where: str) -> Image:
    """Read an image that is given in base64.

    Raises:
        BadAsk: It is none.
    """
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadAsk("this image is no base64", where=where) from None
    return Image(hashlib.sha256(body).hexdigest(), media_type, body)
