"""The context of a request: it goes on from the sampled ids of an earlier turn where the messages say so.

A foreign agent sends its whole conversation each time. Where it begins with a conversation that this session knows, up
to an answer that was given here, the ids of that answer and all before it are taken as they are, and what is new is
bridged behind them. Nothing else is ever taken over: a conversation that says something else is rendered as it is.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Context, Ids, Root, Span
from agentgym_tok.trace import Turn
from agentgym_tok.trace.edges.likeness import squash
from agentgym_tok.trace.laws import answered
from agentgym_tok.types import Message, ToolCall

__all__ = ["Contexts", "Given", "Prepared"]


@dataclass(slots=True, eq=False)
class Given:
    """Hold a turn together with what the client was told of it.

    Args:
        turn: The turn, as it is logged; whoever finds out later that it was used says so here.
        told: The message that a faithful client sends back.
        reasonings: The reasoning of each answer in its conversation and of its own, as far as the client has it.
        messages: Of its conversation and it.
        digest: Of both, as a later request quotes them.
    """

    turn: Turn
    told: Message
    reasonings: tuple[str | None, ...] = ()
    messages: int = 0
    digest: bytes = b""


class _Said:
    """Hold what a conversation says, in a form that compares and can be gone on from.

    Args:
        messages: The conversation.
        tools: JSON schemas of its tools.
    """

    __slots__ = ("_hasher", "digests", "reasonings")

    def __init__(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> None:
        self._hasher = hashlib.blake2b(digest_size=16)
        if tools:
            self._hasher.update(json.dumps(list(tools), sort_keys=True).encode())
        self.digests: list[bytes] = []
        """Of the conversation up to each message."""
        self.reasonings = _reasonings(messages)
        """Of each of its answers, as far as it has them."""
        for message in messages:
            self._hasher.update(_meaning(message).encode())
            self.digests.append(self._hasher.digest())

    def digest_with(self, message: Message) -> bytes:
        """Return the digest of the conversation and one more message."""
        hasher = self._hasher.copy()
        hasher.update(_meaning(message).encode())
        return hasher.digest()


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Hold what the engine is about to get.

    Args:
        context: It ends in a generation prompt, or in what the client wrote of the turn already.
        conversation: All messages of the request, without that beginning of the turn.
        prefill: That beginning; empty where there is none.
        source: The turn whose ids it begins with; None where the conversation was rendered.
        news: The messages behind the source's answer, of which the bridge is made; empty where no bridge is.
        rendered: The messages that the template makes the context of; empty where it does not.
        reason: Why it was rendered although some turn said the same: a refusal of the bridge, or `ambiguous`.
        said: What the conversation says.
    """

    context: Context
    conversation: tuple[Message, ...]
    prefill: str
    source: Given | None
    news: tuple[Message, ...] = ()
    rendered: tuple[Message, ...] = ()
    reason: str = ""
    said: "_Said | None" = None

    def holds(self, given: Given) -> bool:
        """Tell whether the conversation begins with an earlier one and its answer."""
        return self.said is not None and given.digest in self.said.digests


@dataclass(slots=True)
class Contexts:
    """Know the conversations of one session by what they say.

    Blanks around an answer, the ids of calls, the writing of arguments and reasoning that the client left out make no
    difference; anything else does.

    Args:
        chat: Tokenizer and template.
    """

    chat: ChatFormat
    _given: dict[bytes, list[Given]] = field(default_factory=dict)

    def add(self, prepared: Prepared, given: Given) -> None:
        """Remember a turn that a client was given.

        Args:
            prepared: Its request.
            given: The turn, and what was told.
        """
        said = prepared.said
        assert said is not None  # it was made here
        given.reasonings = said.reasonings + _reasonings([given.told])
        given.messages, given.digest = len(prepared.conversation) + 1, said.digest_with(given.told)
        self._given.setdefault(given.digest, []).append(given)

    def prepare(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Prepared:
        """Return the context of a request.

        Args:
            messages: All its messages; where the last one is an assistant's, the turn goes on behind it.
            tools: JSON schemas of its tools.

        Raises:
            ChatError: The template refuses the conversation, or it ends in calls.
        """
        conversation, prefill = _split_prefill(messages)
        reason, said = "", _Said(conversation, tools)
        for place in range(len(conversation) - 1, 0, -1):  # behind an answer stands something new
            answer = conversation[place - 1]
            found = self._given.get(said.digests[place - 1]) if answer.role == "assistant" else None
            if not found:
                continue
            answers = sum(message.role == "assistant" for message in conversation[:place])
            same = [given for given in found if _fits(said.reasonings[:answers], given.reasonings)]
            if not same:
                continue  # the client thinks otherwise than the policy did
            given = _only(same)
            if given is None:
                reason = "ambiguous"
                break
            news = _with_own_ids(answer, given.told, conversation[place:])
            bridged = self.chat.bridge(answered(given.turn), news)
            if not isinstance(bridged, Refusal):
                context = self._begun(bridged, prefill)
                return Prepared(context, conversation, prefill, given, news, said=said)
            reason = bridged.reason
            break
        opened = self.chat.open(conversation, tools or None)
        context = self._begun(opened, prefill)
        return Prepared(context, conversation, prefill, None, (), conversation, reason, said)

    def found(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], ids_T: Ids) -> Prepared:
        """Return the context that an engine made of a request by itself.

        Args:
            messages: All messages of the request.
            tools: JSON schemas of its tools.
            ids_T: int32 [T], what the engine said that it read.
        """
        root = Root(self.chat.fingerprint, self.chat.vocab_size, tuple(tools))
        source = self._longest(root, ids_T)
        conversation, said = tuple(messages), _Said(messages, tools)
        if source is None:
            made = _makes(lambda: self.chat.open(conversation, tools or None), ids_T)
            context = Context(root, Span(ids_T, "prompt"))
            return Prepared(context, conversation, "", None, (), conversation if made else (), said=said)
        before = answered(source.turn)
        context = before.extend(Span(ids_T[len(before) :], "observation"))
        news = conversation[source.messages :]
        made = _makes(lambda: self.chat.bridge(before, news), ids_T)
        return Prepared(context, conversation, "", source, news if made else (), said=said)

    def _longest(self, root: Root, ids_T: Ids) -> Given | None:
        """Return the turn that ids go on from: the longest one, and of equal ones the newest that was used."""
        best: tuple[int, bool] | None = None
        found = None
        for given in (given for same in self._given.values() for given in same):
            context, turn_T = given.turn.context, given.turn.completion.ids_T
            end, rank = len(context) + len(turn_T), (len(context) + len(turn_T), given.turn.used)
            if end > len(ids_T) or context.root.tools_digest != root.tools_digest or (best and rank < best):
                continue
            if np.array_equal(turn_T, ids_T[len(context) : end]) and np.array_equal(context.ids, ids_T[: len(context)]):
                best, found = rank, given
        return found

    def _begun(self, context: Context, prefill: str) -> Context:
        return context.extend(Span(self.chat.encode(prefill), "forced")) if prefill else context


def _split_prefill(messages: Sequence[Message]) -> tuple[tuple[Message, ...], str]:
    """Return the conversation up to the turn that is asked for, and what the client wrote of that turn itself."""
    last = messages[-1]
    if last.role != "assistant":
        return tuple(messages), ""
    if last.tool_calls or len(messages) == 1:
        got = "calls that nobody answered" if last.tool_calls else "nothing but an answer"
        raise ChatError("there is nothing to answer", where=f"messages[{len(messages) - 1}]", got=got)
    return tuple(messages[:-1]), last.content


def _makes(make: Callable[[], Context | Refusal], ids_T: Ids) -> bool:
    """Tell whether the chat format makes the very ids."""
    try:
        made = make()
    except ChatError:
        return False
    return isinstance(made, Context) and np.array_equal(made.ids, ids_T)


def _only(found: Sequence[Given]) -> Given | None:
    """Return the turn that a client goes on from; None where several said it with other ids, and it may be any."""
    used = [given for given in found if given.turn.used] or list(found)
    ids = {(given.turn.context.digest, given.turn.completion.ids_T.tobytes()) for given in used}
    return used[-1] if len(ids) == 1 else None


def _reasonings(messages: Sequence[Message]) -> tuple[str | None, ...]:
    said = (message.reasoning for message in messages if message.role == "assistant")
    return tuple(None if one is None else intern(squash(one)) for one in said)


def _fits(back: Sequence[str | None], told: Sequence[str | None]) -> bool:
    return all(one in (None, "", other) for one, other in zip(back, told, strict=True))


def _with_own_ids(answer: Message, told: Message, news: Sequence[Message]) -> tuple[Message, ...]:
    """Name the calls that results answer as the turn does, whatever the client calls them."""
    own: dict[str | None, list[str]] = {}
    for back, call in zip(answer.tool_calls, told.tool_calls, strict=True):
        own.setdefault(back.id, []).append(call.id)
    # Where calls share an id, their results come in the calls' order.
    named = []
    for message in news:
        ids = own.get(message.tool_call_id)
        named.append(message if not ids else replace(message, tool_call_id=ids.pop(0) if len(ids) > 1 else ids[0]))
    return tuple(named)


def _meaning(message: Message) -> str:
    """Return what makes a message the one it is, as a text that nothing else has."""
    if message.role != "assistant":
        return repr((message.role, message.content, message.images))
    calls = [[call.name, _arguments(call)] for call in message.tool_calls]
    return repr((message.role, squash(message.content), json.dumps(calls, sort_keys=True) if calls else ""))


def _arguments(call: ToolCall) -> Any:
    # No text at all comes back as no arguments.
    return squash(call.raw) if call.arguments is None and call.raw else _canonical(call.arguments or {})


def _canonical(value: Any) -> Any:
    """Return a JSON value with its numbers as a client in JavaScript reads and writes them again: as doubles."""
    if isinstance(value, Mapping):
        return {name: _canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    return _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _number(value: float) -> float:
    try:
        double = float(value)
    except OverflowError:
        return value
    return int(double) if double.is_integer() and abs(double) < 1e21 else double
