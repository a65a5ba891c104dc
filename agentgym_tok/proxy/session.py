"""A session of a foreign agent: an episode whose turns come as requests, each with its whole conversation."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, ResetNeeded, TraceError
from agentgym_tok.proxy.attempts import Attempt, Attempts, Delivery
from agentgym_tok.proxy.contexts import Contexts, Given, Prepared
from agentgym_tok.proxy.drafts import Answer, Draft, Evidence, facts_of
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.retries import Retries
from agentgym_tok.proxy.waiting import Waiting
from agentgym_tok.proxy.wire import Ask, BadAsk
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Edge, EpisodeHead, Failure, Lineage, Status, TraceStore, Turn, classify, sent_digest
from agentgym_tok.trace.laws import answered
from agentgym_tok.types import Message

__all__ = ["Session"]


class Session:
    """Turn requests into the turns of an episode; used from one event loop.

    Args:
        head: What the episode is.
        chat: Tokenizer and template.
        store: Where turns go.
        journal: Writes to it.
    """

    def __init__(self, head: EpisodeHead, chat: ChatFormat, store: TraceStore, journal: Journal) -> None:
        self.head = head
        self.drawing: set[Draft] = set()
        """What is being drawn."""
        self.active = time.monotonic()
        """When it was last asked something."""
        self.broken: Exception | None = None
        """Why a turn could not be recorded."""
        self.closing: tuple[Status, bool | None, Failure | None] | None = None
        """How it is to end, once nothing is being drawn any more."""
        self.ended = asyncio.Event()
        """All of it is on its way to the store."""
        self._chat = chat
        self._store = store
        self._journal = journal
        self._contexts = Contexts(chat)
        self._lineage = Lineage(chat.parse)
        self._waiting = Waiting(self._lineage)
        self._retries = Retries(self._waiting)
        self._responses: dict[str, tuple[Message, ...]] = {}
        self._notes: dict[str, Any] = {}
        self._requests = 0
        self._lost: Exception | None = None
        """Why the store took no more; the journal's thread alone says so."""
        self._write(lambda: store.begin(head))

    # ---- turns

    def prepare(self, ask: Ask, evidence: Evidence) -> Draft:
        """Return what the engine is to get for a request.

        Raises:
            BadAsk: It names an answer that was never given, or a key that names another request.
            ChatError: The template refuses the conversation.
            ResetNeeded: The session has ended.
            TraceError: The store did not take an earlier turn.
        """
        draft = self.open(ask, evidence)
        try:
            self._fit(draft, self._contexts.prepare(draft.ask.messages, draft.ask.tools))
        except BaseException:
            self.drop(draft)
            raise
        return draft

    def open(self, ask: Ask, evidence: Evidence) -> Draft:
        """Begin a turn whose context the engine makes; `fit` takes it once the engine has told its ids.

        Raises:
            BadAsk: It names an answer that was never given, or a key that names another request.
            ResetNeeded: The session has ended.
            TraceError: The store did not take an earlier turn.
        """
        self._require_open()
        self.active = time.monotonic()
        ask = self._whole(ask)
        verdict = self._retries.judge(evidence, self.drawing)
        if verdict.again is not None:
            verdict.again.ended = 0.0  # an answer is on its way once more
        number, self._requests = self._requests, self._requests + 1
        draft = Draft(ask, evidence, number, verdict.again, verdict.shown_by, verdict.doubt)
        draft.new_key = self._retries.note(evidence)
        self.drawing.add(draft)
        return draft

    def fit(self, draft: Draft, ids_T: Ids) -> None:
        """Take the ids that the engine made of a request.

        Args:
            draft: The turn.
            ids_T: int32 [T], the prompt.
        """
        self._fit(draft, self._contexts.found(draft.ask.messages, draft.ask.tools, ids_T))

    def count(self, ask: Ask) -> int:
        """Return how many ids the engine would get for a request.

        Raises:
            ChatError: The template refuses the conversation.
        """
        return len(self._contexts.prepare(ask.messages, ask.tools).context)

    def drop(self, draft: Draft) -> None:
        """Let go of a turn; one that was never recorded leaves no trace."""
        if draft not in self.drawing:
            return
        self.drawing.discard(draft)
        if draft.again is not None:
            draft.again.end()
        if draft.new_key:
            self._retries.forget(draft.evidence)

    def _fit(self, draft: Draft, prepared: Prepared) -> None:
        self._waiting.note_taken(prepared)
        if draft.again is None:
            self._waiting.settle(alone=self.drawing <= {draft})
        draft.prepared, draft.edge = prepared, self._edge(prepared)

    def seed(self, draft: Draft, choice: int) -> int:
        """Return the seed of a choice: the client's own, or one that follows from the session's."""
        if draft.ask.seed is not None:
            return draft.ask.seed if not choice else derive_seed(draft.ask.seed, choice)
        return derive_seed(self.head.seed, self.head.task, self.head.replica, draft.number, choice)

    def record(self, draft: Draft, answers: Sequence[Answer], reply_id: str = "") -> list[Attempt]:
        """Take in what was drawn, before the client has all of it; `deliver` says what became of it.

        Args:
            draft: What was asked.
            answers: One for each choice.
            reply_id: By which a later request may go on from it.

        Returns:
            The attempts, in the order of the answers.
        """
        self.drawing.discard(draft)
        turns = self._waiting.place(draft)
        try:
            recorded = [self._add(draft, turns, answer, choice, len(answers)) for choice, answer in enumerate(answers)]
        except Exception as error:
            # What cannot be recorded must not be gone on from, and what was recorded before it must still be written.
            self._waiting.withdraw(turns)
            self._break(error)
            raise
        self._waiting.refresh(turns)
        if reply_id and draft.ask.protocol == "openai_responses":
            self._responses[reply_id] = (*draft.ask.messages[draft.ask.lead :], answers[0].told)
        self._flush()
        return recorded

    def _add(self, draft: Draft, turns: Attempts, answer: Answer, choice: int, choices: int) -> Attempt:
        given = Given(self._turn(draft, turns, answer, choice), answer.told)
        attempt = Attempt(given, choices)
        self._lineage.add(given.turn, answer.said)
        turns.attempts.append(attempt)
        if attempt.is_turn and draft.prepared is not None:
            self._contexts.add(draft.prepared, given)
        return attempt

    def deliver(self, recorded: Sequence[Attempt], delivery: Delivery) -> None:
        """Say how much of an answer the client got."""
        self.active = time.monotonic()
        self._waiting.deliver(recorded, delivery)

    def reap(self) -> None:
        """Write what no client will ask for again."""
        self._waiting.settle(alone=False)
        self._flush()

    # ---- what others say of the session

    def reward(self, value: float) -> None:
        """Add a reward to the newest turn that the client used; where it used none, to the newest that there is.

        Raises:
            ConfigError: It is no number.
            ResetNeeded: There is no turn, or the session has ended.
            TraceError: An earlier turn could not be recorded.
        """
        self._require_open()
        if not math.isfinite(value):
            raise ConfigError("a reward is a finite number", where=f"session {self.head.id}", got=value)
        self.active = time.monotonic()
        turns = self._waiting.rewarded()
        if turns is None:
            fix = "reward a session after its agent has got an answer"
            raise ResetNeeded("there is no turn to reward", where=f"session {self.head.id}", fix=fix)
        turns.reward += value

    def note(self, **metadata: Any) -> None:
        """Keep small facts, which stand in the trace on the next turn that is written; without turns they are lost.

        Raises:
            ConfigError: They are no JSON.
            ResetNeeded: The session has ended.
        """
        self._require_open()
        try:
            json.dumps(metadata, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError("facts must be JSON", where=f"session {self.head.id}", got=str(error)) from error
        self.active = time.monotonic()
        self._notes |= metadata

    def end(self, status: Status = "done", success: bool | None = None, failure: Failure | None = None) -> None:
        """Write all turns and the end; what is still being drawn has to be broken off first.

        An episode of which the store did not take everything has failed, whatever it was to end as.
        """
        if self.ended.is_set():
            return
        self.ended.set()
        self._flush(last=True)

        def finish() -> None:
            lost = self._lost or self.broken
            if lost is None:
                self._store.finish(self.head.id, status, success, failure)
            else:
                self._store.finish(self.head.id, "failed", None, Failure("store", type(lost).__name__, str(lost)))

        self._journal.put(finish, self._lose)

    @property
    def turns(self) -> int:
        """Turns so far."""
        return len(self._lineage)

    # ---- turns as they are written

    def _edge(self, prepared: Prepared) -> Edge:
        """Return how a context came about, for a turn of its own; another attempt at a turn is a retry of that."""
        edge = classify(self._lineage, prepared.context, prepared.conversation).edge
        if edge.kind == "continuation" and prepared.source is None:
            # Rendered, to the very ids: a bridge from the messages need not give them, the rendering does.
            edge = replace(edge, kind="rerender", reason=_joined(prepared.reason, "the same ids", edge.reason))
        elif edge.kind == "retry" and prepared.source is not None:
            # It was asked before, and goes on from where that went on from: this says which messages made it.
            edge = self._goes_on(prepared.source.turn, prepared, f"asked before as turn {edge.source}")
        elif prepared.reason and edge.source is not None:
            edge = replace(edge, reason=_joined(prepared.reason, edge.reason))
        return edge

    def _goes_on(self, source: Turn, prepared: Prepared, reason: str) -> Edge:
        step, target = self._lineage.step(source.index), len(self._lineage)
        if step is not None and answered(step.turn).digest == answered(source).digest:
            return Edge("continuation", source.index, target, reason, declared=False)
        reason = _joined(reason, f"goes on from attempt {source.attempt} of turn {source.index}, not the used one")
        place = None if step is None else step.place(prepared.context)
        return Edge("unknown", source.index, target, reason, declared=False, place=place)

    def _turn(self, draft: Draft, turns: Attempts, answer: Answer, choice: int) -> Turn:
        completion = answer.completion
        attempt, context = len(turns.attempts), draft.context
        edge = replace(draft.edge, target=turns.index)
        if attempt:
            declared = draft.retry not in {"", "same_body"}
            edge = Edge("retry", turns.index, turns.index, draft.retry or "another choice", declared=declared)
        return Turn(
            episode=self.head.id,
            index=turns.index,
            context=context,
            sent_digest=sent_digest(context.root, context.ids),
            completion=completion,
            edge=edge,
            messages=() if attempt else draft.messages,
            text=self._chat.decode(completion.ids_T),
            attempt=attempt,
            used=False,
            seed=self.seed(draft, choice),
            started=draft.started,
            ended=time.time(),
            failure=answer.failure,
            facts=facts_of(draft, answer),
        )

    # ---- the rest

    def _whole(self, ask: Ask) -> Ask:
        if ask.previous_response_id is None:
            return ask
        earlier = self._responses.get(ask.previous_response_id)
        if earlier is None:
            where, got = "previous_response_id", ask.previous_response_id
            raise BadAsk("this session gave no such answer", where=where, got=got, fix="send the whole conversation")
        return ask.after(earlier)

    def _require_open(self) -> None:
        if self.ended.is_set() or self.closing is not None:
            raise ResetNeeded("the session has ended", where=f"session {self.head.id}", fix="open another one")
        if self.broken is not None:
            raise TraceError(
                "the trace could not be written", where=f"session {self.head.id}", got=str(self.broken)
            ) from self.broken

    def _flush(self, *, last: bool = False) -> None:
        for turn in self._waiting.written(last=last):
            noted, self._notes = self._notes, {}
            written = replace(turn, facts={**turn.facts, "session": noted}) if noted else turn
            self._write(lambda written=written: self._store.append(written))  # type: ignore[misc]

    def _write(self, job: Callable[[], object]) -> None:
        def write() -> None:
            if self._lost is None:  # what follows a turn that was not taken has no place
                job()

        self._journal.put(write, self._lose)

    def _lose(self, error: Exception) -> None:
        self._lost = self._lost or error
        self._break(error)

    def _break(self, error: Exception) -> None:
        self.broken = self.broken or error


def _joined(*reasons: str) -> str:
    return ", ".join(filter(None, reasons))
