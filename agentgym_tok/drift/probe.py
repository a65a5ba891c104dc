"""Ask a chat template what it does to a conversation that grows, message kind by message kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.drift.align import common_prefix
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.messages import audit_messages
from agentgym_tok.drift.pipeline import TextPipeline, text_pipeline
from agentgym_tok.drift.report import DriftClass
from agentgym_tok.drift.template import Probe, TemplateReport
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Message, ToolCall

__all__ = ["probe_template"]

Tools: TypeAlias = Sequence[Mapping[str, Any]]

_PARAMETERS = {"type": "object", "properties": {"at": {"type": "string", "description": "what to look at"}}}
_LOOK = {"name": "look", "description": "Look at a thing.", "parameters": _PARAMETERS}
_TOOLS = ({"type": "function", "function": _LOOK},)
_CALL, _OTHER_CALL = (ToolCall("look", {"at": word}, id=f"call0000{n}") for n, word in enumerate(("lamp", "desk")))
_RESULTS = [Message("tool", f"Result {call.id}.", tool_call_id=call.id, name="look") for call in (_CALL, _OTHER_CALL)]
_ASK, _THEN = Message("user", "What is there?"), Message("user", "And then?")
_ANSWER, _THOUGHT = "There is a lamp.", "A lamp can be seen."
_BLANKS = "\n There are blanks. \n"
_SHOWN = 40


def probe_template(chat: ChatFormat) -> TemplateReport:
    """Report which kinds of messages a template can append without changing what stands before them.

    Args:
        chat: The chat format; nothing else is needed, no model and no network.
    """
    prober = _Prober(text_pipeline(chat))
    probes = (*prober.messages(), *prober.texts(), *prober.surroundings())
    return TemplateReport(chat.reference, chat.fingerprint, chat.dialect, probes)


class _Prober:
    """Put the questions to one template."""

    def __init__(self, pipeline: TextPipeline) -> None:
        self._pipeline = pipeline
        self._chat = pipeline.chat

    # ---- messages that follow a turn

    def messages(self) -> Iterator[Probe]:
        """Yield what becomes of the past when messages are appended."""
        said, called = Message("assistant", _ANSWER), Message("assistant", "", tool_calls=(_CALL,))
        called_twice = replace(called, tool_calls=(_CALL, _OTHER_CALL))
        thought, thought_call = self._thinking(said), self._thinking(called)
        one = _RESULTS[:1]
        yield self._append("user message", [_ASK], said, [_THEN])
        yield self._append("tool result", [_ASK], called, one)
        yield self._append("several tool results", [_ASK], called_twice, _RESULTS)
        yield self._append("system message", [_ASK], said, [Message("system", "Be brief.")])
        yield self._append("user after reasoning", [_ASK], thought, [_THEN])
        yield self._append("tool result after reasoning", [_ASK], thought_call, one)
        yield self._append("user after a tool's turn", [_ASK, called, *one], said, [_THEN])
        yield self._append("user after reasoning with tools", [_ASK, thought_call, *one], thought, [_THEN])
        yield self._append("empty answer", [_ASK], Message("assistant", ""), [_THEN])
        yield self._append("empty user text", [_ASK], said, [Message("user", "")])

    def _thinking(self, message: Message) -> Message:
        """Return a turn with reasoning, in the field for it or as text where the template reads no such field."""
        if self._pipeline.writes_reasoning:
            return replace(message, reasoning=_THOUGHT)
        opener, closer = next(iter(self._chat.reasoning_pairs), ("", ""))
        return replace(message, content=f"{opener}\n{_THOUGHT}\n{closer}\n\n{message.content}".strip())

    def _append(self, name: str, history: list[Message], turn: Message, new: list[Message]) -> Probe:
        messages = (*history, turn, *new)
        tools = _TOOLS if any(message.tool_calls for message in messages) else ()
        try:
            bridge = self._bridge(history, turn, new, tools)
        except ChatError as error:
            return Probe(name, None, detail=_refusal(error))
        try:
            text = self._pipeline.render(messages, tools, generation=True)
        except ChatError as error:
            return Probe(name, None, bridge=bridge, detail=_refusal(error))
        calls = [
            word for message in messages for call in message.tool_calls for word in (call.arguments or {}).values()
        ]
        lost = [word for word in (*calls, *(message.content for message in new)) if word not in text]
        if lost:
            return Probe(name, False, "template", bridge=bridge, detail=f"left out: {lost[0]!r}")
        drifts = audit_messages(self._pipeline, Conversation(messages, tools)).drifts
        if not drifts:
            return Probe(name, True, bridge=bridge)
        first, count = drifts[0], sum(drift.count for drift in drifts)
        detail = f"{self._shown(first.exact_T)} becomes {self._shown(first.text_T)}"
        return Probe(name, False, first.kind, count, bridge, detail)

    def _shown(self, ids_T: Ids) -> str:
        return _shorten(self._chat.decode(ids_T)) if len(ids_T) else "nothing"

    def _bridge(self, history: list[Message], turn: Message, new: list[Message], tools: Tools) -> str:
        context = self._chat.open(history, tools)
        found = self._chat.bridge(context.sampled(self._sampled(history, turn, tools)), new)
        return found.reason if isinstance(found, Refusal) else "ok"

    def _sampled(self, history: list[Message], turn: Message, tools: Tools) -> Ids:
        """Return a turn as a policy would draw it, which is as the template writes it where that can be told."""
        prompt = self._pipeline.render(history, tools, generation=True)
        told = self._pipeline.render([*history, turn], tools)
        if not told.startswith(prompt):
            return self._chat.encode_turn(_ANSWER)
        ids_T = self._pipeline.encode(told[len(prompt) :])
        stops = np.flatnonzero(np.isin(ids_T, list(self._pipeline.closers)))
        return ids_T[: stops[-1] + 1] if len(stops) else ids_T

    # ---- texts

    def texts(self) -> Iterator[Probe]:
        """Yield what becomes of texts that a template may write otherwise."""
        called = Message("assistant", "", tool_calls=(_CALL,))
        yield self._blanks("blanks around a user's text", [Message("user", _BLANKS)])
        yield self._blanks("blanks around an answer", [_ASK, Message("assistant", _BLANKS), _THEN])
        yield self._blanks("blanks around a tool's text", [_ASK, called, replace(_RESULTS[0], content=_BLANKS)])
        yield self._arguments()

    def _blanks(self, name: str, messages: list[Message]) -> Probe:
        try:
            text = self._pipeline.render(messages, generation=True)
        except ChatError as error:
            return Probe(name, None, detail=_refusal(error))
        if _BLANKS in text:
            return Probe(name, True)
        words = _BLANKS.strip() in text
        return Probe(name, False, "whitespace" if words else "template", detail="trimmed" if words else "left out")

    def _arguments(self) -> Probe:
        name = "arguments of a call"
        call = replace(_CALL, arguments={"at": "lamp", "lit": False})
        try:
            text = self._pipeline.render([_ASK, Message("assistant", "", tool_calls=(call,))], _TOOLS)
        except ChatError as error:
            return Probe(name, None, detail=_refusal(error))
        for written in ('{"at": "lamp", "lit": false}', '{"at":"lamp","lit":false}'):
            if written in text:
                return Probe(name, False, "arguments", detail=f"always written as {written}")
        if "lamp" not in text:
            return Probe(name, False, "template", detail="left out")
        if "False" in text:
            return Probe(name, False, "arguments", detail="False is written for false")
        return Probe(name, True, detail="written in a form of the template's own")

    # ---- what stands around texts

    def surroundings(self) -> Iterator[Probe]:
        """Yield what the template and the tokenizer add of their own."""
        try:
            text = self._pipeline.render([_ASK])
            told = self._pipeline.render([_ASK, Message("assistant", _ANSWER)])
            then = self._pipeline.render([_ASK, Message("assistant", _ANSWER), _THEN])
        except ChatError as error:
            yield Probe("conversation", None, detail=_refusal(error))
            return
        dated = self._pipeline.tells_time
        kind: DriftClass | None = "template" if dated else None
        yield Probe("date", not dated, kind, detail="written as it is when it renders" if dated else "none")
        yield self._default_system(text, then)
        yield self._bos(text)
        yield self._stop(told, then)

    def _default_system(self, text: str, then: str) -> Probe:
        opening_T, between_T = (
            self._pipeline.encode(part)
            for part in (text.partition(_ASK.content)[0], then.partition(_ANSWER)[2].partition(_THEN.content)[0])
        )
        size = common_prefix(opening_T[::-1], between_T[::-1])
        written = [
            index for index in opening_T[: len(opening_T) - size].tolist() if index not in self._chat.control_ids
        ]
        words = self._chat.decode(as_ids(written))
        words = words.partition("\n")[2].strip() or words.strip()  # behind the name of the role, where one is written
        return Probe("default system prompt", True, detail=_shorten(words) if words else "none")

    def _bos(self, text: str) -> Probe:
        plain, special = (self._pipeline.encode(text, special_tokens=on).tolist() for on in (False, True))
        bos_ids = self._pipeline.bos_ids
        if special[:1] == special[1:2] and special[0] in self._chat.control_ids:
            return Probe("BOS", False, "bos", 1, detail="doubled when a rendering is encoded with special tokens")
        if plain[0] in bos_ids:
            return Probe("BOS", True, detail="single, written by the template")
        return Probe("BOS", True, detail="added by the tokenizer alone" if special != plain else "none")

    def _stop(self, told: str, then: str) -> Probe:
        last, past = (text.partition(_ANSWER)[2] for text in (told, then))
        models = ", ".join(map(self._chat.token_text, self._chat.stop_ids))
        if not past.startswith(last):
            detail = f"{_shorten(last)} ends a conversation, {_shorten(past[: len(last)])} a turn in it"
            return Probe("stop token", False, "stop_token", 1, detail=detail)
        written = self._first_control(last)
        if written is None:
            return Probe("stop token", True, detail=f"none is written behind a turn; models stop on {models}")
        return Probe("stop token", True, detail=f"{written} is written; models stop on {models}")

    def _first_control(self, text: str) -> str | None:
        ids_T = self._pipeline.encode(text)[:1]
        return self._chat.token_text(int(ids_T[0])) if len(ids_T) and int(ids_T[0]) in self._chat.control_ids else None


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _refusal(error: ChatError) -> str:
    return f"{error.what}: {error.got}"
