"""A small gateway that never encodes a turn again: messages find the context, ids prove it, and the rest is declared.

It is a reference for what a gateway must do, not one for production: it keeps everything in memory and answers streams
in one piece.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat, Context, Message, Refusal
from tito_conformance.gateways.base import Drawn, Gateway, Turn, draw
from tito_conformance.messages import to_openai
from tito_conformance.models import Model

__all__ = ["ExactGateway"]


@dataclass(frozen=True, slots=True)
class _Known:
    """Hold a conversation up to a turn.

    Args:
        messages: The messages, as they were told to the agent or came from it.
        context: The ids, the turn's included; None where the engine's answer cannot be trusted.
        broken: Why it cannot.
    """

    messages: tuple[Mapping[str, Any], ...]
    context: Context | None
    broken: str = ""


class ExactGateway(Gateway):
    """Append to what was sampled; where that cannot be, open a new context and say why."""

    def __init__(self, engine: str, models: Sequence[Model], port: int = 0) -> None:
        self._known: dict[tuple[str, str], _Known] = {}
        self._last: dict[str, tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]] = {}
        self._lock = threading.Lock()
        super().__init__(engine, models, port)

    def turn(self, session: str, body: Mapping[str, Any], model: Model) -> Turn:
        """Answer a request from the ids of the conversation that its messages name."""
        messages, tools = body["messages"], body.get("tools") or []
        with self._lock:
            known, behind = self._find(session, messages, tools)
            last = self._last.get(session)
        context, drift = _context(model.chat, known, behind, messages, tools)
        if known is None and last is not None and any(message["role"] == "assistant" for message in messages):
            drift = [_edit(last, (messages, tools))]
        drawn = draw(self.engine, model, context.ids.tolist(), body)
        broken = _broken(drawn, context)
        if broken:
            read = model.chat.parse(model.chat.encode(drawn.text), tools or None)
            sampled, told = None, replace(drawn, ids=None, logprobs=None)
        else:
            ids_T = np.array(drawn.ids, dtype=np.int32)
            read = model.chat.parse(ids_T, tools or None)
            sampled, told = context.sampled(ids_T, drawn.logprobs), drawn
        message = to_openai(read, str(len(context)), drawn.stop)
        told_messages = (*(known.messages if known else messages[: len(messages) - len(behind)]), *behind, message)
        with self._lock:
            self._keep((session, _key(told_messages, tools)), _Known(told_messages, sampled, broken))
            self._last[session] = told_messages, tools
        return Turn(message, told, [*drift, *([broken] if broken else [])])

    def _keep(self, key: tuple[str, str], turn: _Known) -> None:
        other = self._known.get(key)
        if other is not None and not (turn.context and other.context and turn.context.digest == other.context.digest):
            # The client asked twice and was told the same text of other ids: from which it goes on, nobody knows.
            turn = _Known(turn.messages, None, turn.broken or other.broken or "other")
        self._known[key] = turn

    def _find(
        self, session: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[_Known | None, list[Mapping[str, Any]]]:
        """Return the conversation that the messages go on from, and those that are new."""
        for place in range(len(messages), 0, -1):
            if messages[place - 1]["role"] == "assistant":
                known = self._known.get((session, _key(messages[:place], tools)))
                if known is not None:
                    return known, _answers(known.messages, messages, place)
                break
        return None, list(messages)


def _context(
    chat: ChatFormat,
    known: _Known | None,
    behind: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> tuple[Context, list[str]]:
    if known is None:
        return chat.open([_message(message) for message in messages], tools), []
    if known.context is not None:
        bridged = chat.bridge(known.context, [_message(message) for message in behind])
        if isinstance(bridged, Context):
            return bridged, []
        drift = [_class_of(bridged)]
    else:
        drift = [known.broken]
    return chat.open([_message(message) for message in (*known.messages, *behind)], tools), drift


def _class_of(refusal: Refusal) -> str:
    return "stop_token" if refusal.reason == "other_opener" else "template"


def _broken(drawn: Drawn, context: Context) -> str:
    """Return the class of what is wrong with the engine's answer."""
    if drawn.prompt_ids is not None and drawn.prompt_ids != context.ids.tolist():
        return "retokenised"
    if drawn.ids is None:
        return "stream_loss"
    logprobs = drawn.logprobs or []
    if len(logprobs) != len(drawn.ids) or any(not -9000 < value <= 1e-4 for value in logprobs):
        return "logprob_misalignment"
    return ""


def _key(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
    """Return what makes two conversations the same, however a client writes JSON or names calls."""
    said = []
    places: dict[str, tuple[int, int]] = {}
    for number, message in enumerate(messages):
        calls = []
        for place, call in enumerate(message.get("tool_calls") or ()):
            places[call["id"]] = number, place
            calls.append([call["function"]["name"], _value(call["function"]["arguments"])])
        answers = places.get(message.get("tool_call_id") or "")
        said.append([message["role"], message.get("content") or "", calls, answers])
    return json.dumps([said, tools], sort_keys=True)


def _value(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _answers(
    told: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]], place: int
) -> list[Mapping[str, Any]]:
    """Return the new messages, whose tool results name calls by the ids and names that the policy drew."""
    own: dict[str, tuple[str, str]] = {}
    for mine, theirs in zip(told, messages[:place], strict=True):
        for call, renamed in zip(mine.get("tool_calls") or (), theirs.get("tool_calls") or (), strict=True):
            own[renamed["id"]] = call["id"], call["function"]["name"]
    behind = []
    for message in messages[place:]:
        named = own.get(message.get("tool_call_id") or "")
        behind.append(message if named is None else {**message, "tool_call_id": named[0], "name": named[1]})
    return behind


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    said = Message.of({**message, "content": content})
    return replace(said, trusted=said.role in ("system", "developer"))


def _edit(
    before: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
    now: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
) -> str:
    """Return the class of the edit that made a request unlike everything before it."""
    if _key((), before[1]) != _key((), now[1]):
        return "tools_swap"
    systems = [[message["content"] for message in side[0] if message["role"] == "system"] for side in (before, now)]
    return "system_swap" if systems[0] != systems[1] else "history_edit"
