"""The steps of an ATIF document: what people and other tools read of a rollout."""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from agentgym_tok.errors import FingerprintMismatch
from agentgym_tok.tokens import Ids
from agentgym_tok.trace.exchange.atif_spans import KEY, carry
from agentgym_tok.trace.records import Episode, Turn
from agentgym_tok.types import AssistantMessage, Message, ToolCall

__all__ = ["ReadingChat", "Steps", "clean", "image_path"]

_SOURCES: Final = {"system": "system", "developer": "system", "assistant": "agent"}
"""Roles that are no user's; a tool's result that no step asked for is read as one's."""
_SUFFIXES: Final = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
"""Media types that ATIF knows."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ReadingChat(Protocol):
    """Read turns from their ids; `ChatFormat` does."""

    @property
    def fingerprint(self) -> str:
        """Of tokenizer, template and settings."""
        ...

    def parse(self, ids_T: Ids, tools: Sequence[Mapping[str, Any]] | None = None) -> AssistantMessage:
        """Read a turn."""
        ...


def image_path(sha256: str, media_type: str) -> str:
    """Return where an image stands beside the documents that show it."""
    return f"images/{sha256}.{_SUFFIXES.get(media_type, 'bin')}"


def clean(value: Any) -> Any:
    """Return a JSON value with U+FFFD for every lone surrogate, which strict JSON readers refuse."""
    text = json.dumps(value, ensure_ascii=False)
    cleaned = _SURROGATE.sub("\ufffd", text)
    return value if cleaned == text else json.loads(cleaned)


class Steps:
    """Collect the steps of one rollout.

    Args:
        chat: Tells content, reasoning and calls of a turn apart; None takes its text whole.
        prompt_ids: Write every prompt out.
        images: Media type of each image that can be shown.
    """

    def __init__(self, chat: ReadingChat | None, prompt_ids: bool, images: Mapping[str, str]) -> None:
        self._steps: list[dict[str, Any]] = []
        self._chat = chat
        self._prompt_ids = prompt_ids
        self._images = images
        self._turns: dict[int, dict[str, Any]] = {}
        self._said: set[tuple[str, str]] = set()
        # What the last step waits for: messages of these roles, and results of these calls, by their ids as they were
        # given and as they are written.
        self._observed: tuple[str, ...] = ()
        self._calls: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def documents(self) -> list[dict[str, Any]]:
        """Return the steps; at least one, since no ATIF document is without."""
        steps = [{name: part for name, part in step.items() if part is not None} for step in self._steps]
        return steps or [{"step_id": 1, "source": "system", "message": "The agent has taken no step."}]

    def add(self, turn: Turn, first: Turn, record: dict[str, Any]) -> None:
        """Add what is new in a turn's prompt, and the turn.

        Args:
            turn: A used attempt.
            first: The attempt whose messages made its context; itself, unless it samples that context again.
            record: What ATIF has no field for.
        """
        goes_on = first.edge.kind == "continuation"
        source = None if first.edge.source is None else self._turns.get(first.edge.source)
        from_last = goes_on and source is not None and source is self._steps[-1]
        self._observed = ("tool", "user") if from_last else ()
        for message in first.messages:
            if message.role in self._observed:
                self._observe({"source_call_id": self._answered(message), "content": self._content(message)})
            else:
                self._say(message, opened=not goes_on)
        self._answer(turn, record)

    def refer(self, child: Episode) -> None:
        """Name a subagent at the step that opened it, where there is one."""
        step = None if child.head.parent_turn is None else self._turns.get(child.head.parent_turn)
        if step is not None:
            self._observe({"subagent_trajectory_ref": [{"trajectory_id": clean(child.id)}]}, step)

    def _say(self, message: Message, *, opened: bool) -> None:
        answer, what = message.role == "assistant", (message.role, message.content)
        # A prompt that is opened anew repeats what was said; nobody shall take that for something new.
        copied = answer or (opened and what in self._said)
        self._said.add(what)
        source = _SOURCES.get(message.role, "user")
        step = self._step(source, message=self._content(message), is_copied_context=copied or None)
        self._observed = ("tool",) if answer else ()
        if answer:
            step["reasoning_content"] = clean(message.reasoning)
            step["tool_calls"] = self._asked(message.tool_calls)

    def _answer(self, turn: Turn, record: dict[str, Any]) -> None:
        completion, said = turn.completion, self._read(turn)
        metrics: dict[str, Any] = {"prompt_tokens": len(turn.context), "completion_tokens": len(completion.ids_T)}
        if self._prompt_ids:
            metrics["prompt_token_ids"] = turn.context.ids.tolist()
        metrics["completion_token_ids"] = completion.ids_T.tolist()
        if completion.logprobs_T is not None:
            metrics["logprobs"] = completion.logprobs_T.tolist()  # as float64, which names each float32
        step = self._step(
            "agent",
            timestamp=_iso(turn.started),
            model_name=clean(completion.engine) or None,
            message=clean(said.content),
            reasoning_content=clean(said.reasoning),
            metrics=metrics,
            llm_call_count=1 if completion.origin == "sampled" else None,
            extra={KEY: carry(record)},
        )
        step["tool_calls"] = self._asked(said.tool_calls)
        self._turns[turn.index] = step

    def _step(self, source: str, **parts: Any) -> dict[str, Any]:
        order = ("timestamp", "model_name", "message", "reasoning_content", "tool_calls", "observation", "metrics")
        step = {"step_id": len(self._steps) + 1, "source": source, **dict.fromkeys(order), **parts}
        self._steps.append(step)
        return step

    def _observe(self, result: dict[str, Any], step: dict[str, Any] | None = None) -> None:
        step = self._steps[-1] if step is None else step
        step["observation"] = step["observation"] or {"results": []}
        step["observation"]["results"].append({name: part for name, part in result.items() if part is not None})

    def _read(self, turn: Turn) -> AssistantMessage:
        if self._chat is None or "ids" in turn.redacted:
            return AssistantMessage(turn.text)
        root = turn.context.root
        if self._chat.fingerprint != root.fingerprint:
            raise FingerprintMismatch(
                "the turn's ids belong to another chat format",
                where=f"turn {turn.index} of {turn.episode}",
                got=self._chat.fingerprint[:16],
                expected=root.fingerprint[:16],
                fix="read it with the run's own format, or with none",
            )
        return self._chat.parse(turn.completion.ids_T, root.tools)

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        text: str = clean(message.content)
        shown = [(name, self._images[name]) for name in message.images if self._images.get(name) in _SUFFIXES]
        if not shown:
            return text
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        for name, kind in shown:
            parts.append({"type": "image", "source": {"media_type": kind, "path": image_path(name, kind)}})
        return parts

    def _asked(self, calls: Sequence[ToolCall]) -> list[dict[str, Any]] | None:
        step = len(self._steps)
        self._calls = [(call.id, clean(call.id) or f"call-{step}-{place}") for place, call in enumerate(calls)]
        pairs = zip(calls, self._calls, strict=True)
        return [_call(call, written) for call, (_, written) in pairs] or None

    def _answered(self, message: Message) -> str | None:
        """Return the call that a message is the result of: by its id, or by its place where the dialect has no ids."""
        if message.role != "tool":
            return None
        by_id = (call for call in self._calls if call[0] and call[0] == message.tool_call_id)
        by_place = (call for call in self._calls if not call[0])
        found = next(by_id, None) or next(by_place, None)
        if found is None:
            return None
        self._calls.remove(found)
        return found[1]


def _call(call: ToolCall, written: str) -> dict[str, Any]:
    document = {"tool_call_id": written, "function_name": clean(call.name), "arguments": {}}
    try:
        document["arguments"] = clean(json.loads(json.dumps(call.arguments or {}, default=dict, allow_nan=False)))
        plain = True
    except (TypeError, ValueError, RecursionError):  # a model may write NaN
        plain = False
    if call.status != "ok" or not plain:
        document["extra"] = {KEY: {"status": call.status, "raw": clean(call.raw)}}
    return document


def _iso(seconds: float) -> str | None:
    """Return a Unix time in ISO 8601; None where nobody looked at the clock, or for no year that there is."""
    try:
        return (_EPOCH + dt.timedelta(seconds=seconds)).isoformat() if seconds else None
    except OverflowError:
        return None
