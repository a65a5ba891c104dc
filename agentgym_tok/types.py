"""What flows between the rooms: messages, requests, completions, and the protocol of a policy."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from agentgym_tok.config import Config
from agentgym_tok.errors import ChatError, PolicyError
from agentgym_tok.tokens import Ids, Logprobs, Origin, as_ids, as_logprobs

__all__ = [
    "AssistantMessage",
    "CallStatus",
    "Completion",
    "Delta",
    "Experts",
    "FinishReason",
    "LogprobKind",
    "Message",
    "Policy",
    "Request",
    "Sampling",
    "ScoreRequest",
    "Scorer",
    "Scores",
    "Support",
    "ToolCall",
    "Trusted",
]

CallStatus: TypeAlias = Literal["ok", "invalid_json", "unclosed", "missing_name", "malformed", "unknown_tool"]
FinishReason: TypeAlias = Literal["stop", "length", "truncated", "abort"]
LogprobKind: TypeAlias = Literal["raw", "processed", "missing", "sentinel"]
Experts: TypeAlias = NDArray[np.uint16]
"""Indices of experts: uint16 [T, L, K], K chosen ones in each of L layers, not writeable."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Hold one tool call of an assistant turn.

    Args:
        name: The tool's name; empty where it is missing.
        arguments: The parsed arguments; None where they cannot be parsed.
        id: The call's id; empty where the dialect has none.
        raw: The call's text between its delimiters.
        tokens: Half-open range of token positions in the turn, delimiters included.
        status: `ok`, or what is wrong with it.
    """

    name: str
    arguments: Mapping[str, Any] | None
    id: str = ""
    raw: str = ""
    tokens: tuple[int, int] = (0, 0)
    status: CallStatus = "ok"


class Trusted(str):
    """Mark prompt text whose control tokens are meant, for `Message.compose`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one message of a conversation.

    Args:
        role: `system`, `user`, `assistant` or `tool`; or `inline`: text that goes on in the assistant's turn before.
        content: Its text.
        tool_calls: An assistant's calls.
        tool_call_id: The call that a tool message answers.
        name: The tool's or speaker's name.
        reasoning: An assistant's reasoning, where it is kept apart from the content.
        trusted: Control tokens spelled in the content are meant. Never set it for text of a world, a tool or a page.
        untrusted: Half-open character ranges of a trusted content that hold such text all the same.
        images: sha256 of each image that is shown with the text, hex; `TraceStore.add_image` keeps the file.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    trusted: bool = False
    untrusted: tuple[tuple[int, int], ...] = ()
    images: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        place = 0
        for start, end in self.untrusted:
            if not place <= start <= end <= len(self.content):
                raise ChatError(
                    "untrusted ranges must be in order and inside the content",
                    where="Message.untrusted",
                    got=f"{self.untrusted} in {len(self.content)} characters",
                )
            place = end

    @classmethod
    def compose(cls, role: str, *parts: str) -> "Message":
        """Join prompt text and world text, each with its own trust.

        Args:
            role: The message's role.
            parts: `Trusted` texts keep their control tokens; plain strings are text of the world.
        """
        ranges: list[tuple[int, int]] = []
        place = 0
        for part in parts:
            if not isinstance(part, Trusted) and part:
                ranges.append((place, place + len(part)))
            place += len(part)
        return cls(role, "".join(parts), trusted=True, untrusted=tuple(ranges))

    @classmethod
    def of(cls, message: "Message | Mapping[str, Any]") -> "Message":
        """Take a message as it is, or read one in the shape of the OpenAI chat API, which is never trusted.

        Raises:
            ChatError: It has no role, its content is no text, or a tool call is no function.
        """
        if isinstance(message, Message):
            return message
        role, content = message.get("role"), message.get("content")
        content = "" if content is None else content
        if not isinstance(role, str) or not isinstance(content, str):
            raise ChatError(
                "a message needs a role and a text",
                where="message",
                got=f"role {role!r}, content of type {type(content).__name__}",
                expected='{"role": "user", "content": "..."}',
            )
        calls = tuple(_call(call) for call in message.get("tool_calls") or ())
        return cls(
            role=role,
            content=content,
            tool_calls=calls,
            tool_call_id=message.get("tool_call_id"),
            name=message.get("name"),
            reasoning=message.get("reasoning_content") or message.get("reasoning"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the message as chat templates and people expect it; absent parts are left out."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = [
                {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": _arguments(call)}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            out["name"] = self.name
        return out


def _call(call: "ToolCall | Mapping[str, Any]") -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        expected = '{"function": {"name": "...", "arguments": "{...}"}}'
        raise ChatError("a tool call needs a function", where="message", got=repr(call), expected=expected)
    name, id_, given = function.get("name") or "", call.get("id") or "", function.get("arguments") or {}
    if isinstance(given, Mapping):
        return ToolCall(name, given, id_)
    # The OpenAI API has arguments as JSON text; templates write the JSON of what they get, so it would be quoted twice.
    try:
        arguments = json.loads(given)
    except (TypeError, ValueError, RecursionError):
        return ToolCall(name, None, id_, raw=str(given), status="invalid_json")
    if not isinstance(arguments, dict):
        return ToolCall(name, None, id_, raw=str(given), status="malformed")
    return ToolCall(name, arguments, id_)


def _arguments(call: ToolCall) -> Mapping[str, Any] | str:
    """Return what a template gets; arguments that are no JSON object stay the text that they were."""
    return call.arguments if call.arguments is not None else call.raw or {}


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """Hold what an assistant turn says, read from its ids.

    Args:
        content: The text outside reasoning and tool calls.
        reasoning: The text inside the reasoning block; None without one.
        tool_calls: Every call, well-formed or not.
        reasoning_closed: False where the turn ended inside its reasoning.
        closed: The turn ended in a stop token.
    """

    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning_closed: bool = True
    closed: bool = True

    def message(self) -> Message:
        """Return it as a message of a conversation; calls that are not `ok` stay out."""
        calls = tuple(call for call in self.tool_calls if call.status == "ok")
        return Message("assistant", self.content, tool_calls=calls, reasoning=self.reasoning)


class Sampling(Config):
    """Set how a policy draws tokens; a model's own generation defaults never apply."""

    temperature: float = Field(default=1.0, ge=0, le=100, description="0 takes the likeliest token")
    top_p: float = Field(default=1.0, gt=0, le=1, description="nucleus; 1 keeps every token")
    top_k: int = Field(default=0, ge=0, description="keep the k likeliest tokens; 0 keeps every token")
    max_tokens: int = Field(default=256, ge=1, description="longest turn, in tokens")
    stop: tuple[str, ...] = Field(
        default=(),
        max_length=4,  # what OpenAI's servers take
        description="the turn ends with the token whose text completes one of these, and which stays whole",
    )

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop or len(set(stop)) < len(stop):
            raise ValueError("stop strings must differ, and none may be empty")
        if any(sign == "\ufffd" or "\ud800" <= sign <= "\udfff" for one in stop for sign in one):
            raise ValueError("a stop string must not hold U+FFFD or lone surrogates: no token spells them")
        return stop

    @model_serializer(mode="wrap")
    def _without_no_stop(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Traces hold the parameters as JSON under a hash: those without stop strings stay byte for byte what they were.
        cells: dict[str, Any] = write(self)
        if not self.stop:
            cells.pop("stop", None)
        return cells


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Request:
    """Ask a policy for one turn; compares by identity.

    Args:
        ids_T: int32 [T], the whole context, ending in the generation prompt.
        sampling: The parameters in force.
        seed: Seed of this request alone; a deterministic policy answers equal requests and seeds with equal ids.
        conversation: Key of the engine's cache: turns of one conversation share it.
        deadline: Unix time in seconds after which the answer is worthless; None waits. The harness sets none; policies
            behind HTTP keep it, `hf:` does not look at it.
        info: What the environment tells experts (`expert`, `admissible`); policies that learn never see it.
    """

    ids_T: Ids
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    conversation: str = ""
    deadline: float | None = None
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Hold which ids each token could be drawn from, once top-k and top-p had left some; compares by identity.

    Args:
        counts_T: int32 [T], how many.
        ids_S: int32 [S], those of the first token, then those of the second, and so on.
    """

    counts_T: Ids
    ids_S: Ids

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts_T", as_ids(self.counts_T, where="Support.counts_T"))
        object.__setattr__(self, "ids_S", as_ids(self.ids_S, where="Support.ids_S"))
        if int(self.counts_T.sum()) != len(self.ids_S):
            got = f"{len(self.ids_S)} ids for counts that sum to {int(self.counts_T.sum())}"
            raise PolicyError("the sampling support is ragged", where="Support", got=got, expected="one id each")

    def __reduce__(self) -> tuple[Any, ...]:
        return Support, (self.counts_T, self.ids_S)


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Hold one turn as the engine returned it; compares by identity.

    Args:
        ids_T: int32 [T], stop token included where the engine drew one.
        logprobs_T: float32 [T], nats, full precision; None where the engine has none.
        finish_reason: `stop`, `length` (token limit of the turn), `truncated` (no room) or `abort`.
        weight_versions: `(version, start, end)`, half-open runs over `ids_T`.
        ids_exact: False where the ids were guessed from text, or may not be all that was drawn; such turns are kept and
            never trained.
        logprobs: `raw` (of the model), `processed` (after temperature, top-k and top-p), `missing` or `sentinel`.
        engine: Name and version of what drew the ids.
        sampling: The parameters in force.
        origin: `sampled`, or `demonstration` for experts and encoded text.
        experts_T_L_K: uint16 [T, L, K], the experts that each layer of a mixture chose; None where nobody said.
        support: The ids that each token could be drawn from; None where nobody said.
        note: Why the ids are not exact, for people.
    """

    ids_T: Ids
    logprobs_T: Logprobs | None = None
    finish_reason: FinishReason = "stop"
    weight_versions: tuple[tuple[str, int, int], ...] = ()
    ids_exact: bool = True
    logprobs: LogprobKind = "missing"
    engine: str = ""
    sampling: Sampling | None = None
    origin: Origin = "sampled"
    experts_T_L_K: Experts | None = None
    support: Support | None = None
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids_T", as_ids(self.ids_T, where="Completion.ids_T"))
        self._check_evidence()
        if self.logprobs_T is not None:
            object.__setattr__(self, "logprobs_T", as_logprobs(self.logprobs_T, len(self.ids_T)))
        if (self.logprobs_T is None) != (self.logprobs == "missing"):
            raise PolicyError(
                "log-probabilities and their kind disagree",
                where=f"completion of {self.engine or 'a policy'}",
                got=f"logprobs={self.logprobs!r} {'without' if self.logprobs_T is None else 'with'} an array",
                expected='"missing" exactly where there is no array',
            )

    def _check_evidence(self) -> None:
        where, length = f"completion of {self.engine or 'a policy'}", len(self.ids_T)
        end = 0
        for version, first, last in self.weight_versions:
            if not end <= first <= last <= length:
                got, expected = f"{version!r} from {first} to {last}", f"runs in order, within {length} ids"
                raise PolicyError("the weight versions do not fit", where=where, got=got, expected=expected)
            end = last
        if self.support is not None and len(self.support.counts_T) != length:
            got = f"{len(self.support.counts_T)} counts for {length} ids"
            raise PolicyError(
                "the sampling support does not fit", where=where, got=got, expected="one count for each id"
            )
        if self.experts_T_L_K is None:
            return
        experts = np.asarray(self.experts_T_L_K)
        fits = experts.ndim == 3 and len(experts) == length and experts.dtype.kind in "iu"
        if not fits or (experts.size and (int(experts.min()) < 0 or int(experts.max()) > np.iinfo(np.uint16).max)):
            got = f"{experts.dtype} of shape {experts.shape}"
            expected = f"whole numbers below 65,536 of shape ({length}, layers, chosen)"
            raise PolicyError("the experts do not fit", where=where, got=got, expected=expected)
        if experts.dtype != np.uint16 or experts.flags.writeable:
            experts = experts.astype(np.uint16)
            experts.flags.writeable = False
        object.__setattr__(self, "experts_T_L_K", experts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, since unpickled arrays are writeable.
        return Completion, tuple(getattr(self, part.name) for part in fields(self))


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """Hold a piece of a streamed turn; the last one carries the whole completion. Compares by identity."""

    ids_T: Ids
    logprobs_T: Logprobs | None = None
    completion: Completion | None = None


@runtime_checkable
class Policy(Protocol):
    """Answer contexts with turns."""

    name: str
    deterministic: bool
    """Equal requests with equal seeds give equal ids, in any batch and any process."""
    wants_info: bool
    """The policy is an expert and reads `Request.info`."""

    def generate(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        """Answer a batch, in order; an exception in a turn's place says why there is none.

        Whoever raises says that no turn was drawn: a harness then asks again, one request at a time.
        """
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Answer one request piece by piece."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRequest:
    """Ask how likely some ids of a sequence are, each after all ids before it; compares by identity.

    Args:
        ids_T: int32 [T], contexts and answers as they stand one after the other.
        parts: `(start, end, sampling)`, half-open ranges of `ids_T` in order, with the parameters that drew them.

    Raises:
        PolicyError: A range is out of order or outside the ids, or begins where no id stands before.
    """

    ids_T: Ids
    parts: tuple[tuple[int, int, Sampling], ...]

    def __post_init__(self) -> None:
        place = 1
        for start, end, _ in self.parts:
            if not place <= start <= end <= len(self.ids_T):
                got = f"{start} to {end} of {len(self.ids_T)} ids"
                expected = "ranges in order, after the first id"
                raise PolicyError("these ids cannot be scored", where="ScoreRequest.parts", got=got, expected=expected)
            place = end


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold the log-probabilities that a `ScoreRequest` asks for, part by part; compares by identity.

    Args:
        raw_S: float32 [S], nats, under the model's own distribution.
        processed_S: float32 [S], nats, after temperature, top-k and top-p of the part; -inf where the id could not
            have been drawn.
        version: Of the weights.
    """

    raw_S: NDArray[np.float32]
    processed_S: NDArray[np.float32]
    version: str


@runtime_checkable
class Scorer(Protocol):
    """Say how likely given ids are; a policy may do this too."""

    fingerprint: str
    """`ChatFormat.fingerprint` of the ids that it knows."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score a batch, in order."""
        ...
