"""The context of a request: it goes on from the sampled ids of an earlier turn where the messages say so.

A foreign agent sends its whole conversation each time. Where it begins with a conversation that this session knows, up
to an answer that was given here, the ids of that answer and all before it are taken as they are, and what is new is
bridged behind them. Nothing else is ever taken over: a conversation that says something else is rendered as it is.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Turn
from agentgym_tok.trace.edges.likeness import squash
from agentgym_tok.trace.laws import answered
from agentgym_tok.types import Message

__all__ = ["Contexts", "Prepared"]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Hold what the engine is about to get.

    Args:
        context: It ends in a generation prompt.
        messages: What a trace holds of it: what is new behind `source`, or the whole conversation.
        source: The turn whose ids it begins with; None where the conversation was rendered.
        reason: Why it was rendered although some turn said the same: a refusal of the bridge, or `ambiguous`.
    """

    context: Context
    messages: tuple[Message, ...]
    source: Turn | None = None
    reason: str = ""


@dataclass(slots=True)
class Contexts:
    """Know the conversations of one session by what they say.

    Blanks, the ids of calls, the writing of arguments and reasoning that the client left out make no difference;
    anything else does.

    Args:
        chat: Tokenizer and template.
    """

    chat: ChatFormat
    _turns: dict[bytes, list[Turn]] = field(default_factory=dict)

    def add(self, conversation: Sequence[Message], turn: Turn) -> None:
        """Remember a turn that a client was given.

        Args:
            conversation: All messages of its request.
            turn: The turn, as it is logged.
        """
        said = self.chat.parse(turn.completion.ids_T, turn.context.root.tools or None)
        *_, digest = _digests([*conversation, said.message()], turn.context.root.tools)
        self._turns.setdefault(digest, []).append(turn)

    def prepare(self, conversation: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Prepared:
        """Return the context of a request.

        Args:
            conversation: All its messages.
            tools: JSON schemas of its tools.

        Raises:
            ChatError: The template refuses the conversation.
        """
        reason = ""
        digests = list(_digests(conversation, tools))
        for place in range(len(conversation) - 1, 0, -1):  # behind an answer stands something new
            turns = self._turns.get(digests[place - 1]) if conversation[place - 1].role == "assistant" else None
            if not turns:
                continue
            turn = _only(turns)
            if turn is None:
                reason = "ambiguous"
                break
            bridged = self.chat.bridge(answered(turn), conversation[place:])
            if not isinstance(bridged, Refusal):
                return Prepared(bridged, tuple(conversation[place:]), turn)
            reason = bridged.reason
            break
        return Prepared(self.chat.open(conversation, tools or None), tuple(conversation), reason=reason)


def _only(turns: Sequence[Turn]) -> Turn | None:
    """Return the turn that a client goes on from; None where several said it with other ids, and it may be any."""
    used = [turn for turn in turns if turn.used] or list(turns)
    ids = {(turn.context.digest, turn.completion.ids_T.tobytes()) for turn in used}
    return used[-1] if len(ids) == 1 else None


def _digests(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the digest of each beginning of a conversation."""
    hasher = hashlib.blake2b(json.dumps(list(tools), sort_keys=True).encode(), digest_size=16)
    for message in messages:
        hasher.update(json.dumps(_meaning(message), sort_keys=True, default=dict).encode("utf-8", "surrogatepass"))
        yield hasher.copy().digest()


def _meaning(message: Message) -> list[Any]:
    if message.role != "assistant":
        return [message.role, message.content, list(message.images)]
    calls = [[call.name, squash(call.raw) if call.arguments is None else call.arguments] for call in message.tool_calls]
    return [message.role, squash(message.content), calls]
