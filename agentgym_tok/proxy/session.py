"""A session of a foreign agent: an episode whose turns come as requests, each with its whole conversation."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ChatError, ResetNeeded, TraceError
from agentgym_tok.proxy.attempts import Attempt, Attempts, Delivery
from agentgym_tok.proxy.contexts import Contexts, Given, Prepared
from agentgym_tok.proxy.drafts import Answer, Draft, Evidence, facts_of
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.waiting import Waiting
from agentgym_tok.proxy.wire import Ask, BadAsk
from agentgym_tok.seeds import derive_seed
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Edge, EpisodeHead, Failure, Lineage, Status, TraceStore, Turn, classify, sent_digest
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
        """Why the store did not take a turn."""
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
        self._seen: set[bytes] = set()
        self._keys: dict[str, bytes] = {}
        self._responses: dict[str, tuple[Message, ...]] = {}
        self._notes: dict[str, Any] = {}
        self._requests = 0
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
        except ChatError:
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
        retry, doubt = self._retry(evidence)
        again = self._waiting.asked_again(evidence, explicit=bool(retry))
        if again is not None:
            again.ended, retry, doubt = 0.0, retry or "same_body", ""  # an answer is on its way once more
        number, self._requests = self._requests, self._requests + 1
        self._seen.add(evidence.body)
        if evidence.key:
            self._keys[evidence.key] = evidence.body
        draft = Draft(ask, evidence, number, again, retry, doubt)
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
        """Forget a turn that was never asked for."""
        self.drawing.discard(draft)

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
        if draft.ask.protocol == "openai_responses" and len(answers) == 1:
            self._responses[reply_id] = (*draft.ask.messages[draft.ask.lead :], answers[0].told)
        self._flush()
        return recorded

    def _add(self, draft: Draft, turns: Attempts, answer: Answer, choice: int, choices: int) -> Attempt:
        given = Given(self._turn(draft, turns, answer, choice), answer.told)
        attempt = Attempt(given, choices)
        self._lineage.add(given.turn, answer.said)
        turns.attempts.append(attempt)
        if attempt.is_turn:
            self._contexts.add(draft.conversation, given, draft.ask.tools)
        return attempt

    def deliver(self, recorded: Sequence[Attempt], delivery: Delivery) -> None:
        """Say how much of an answer the client got."""
        self._waiting.deliver(recorded, delivery)

    def reap(self) -> None:
        """Write what no client will ask for again."""
        self._waiting.settle(alone=False)
        self._flush()

    # ---- what others say of the session

    def reward(self, value: float) -> None:
        """Add a reward to the newest turn that the client used.

        Raises:
            ResetNeeded: There is none, or the session has ended.
            TraceError: The store did not take an earlier turn.
        """
        self._require_open()
        given = self._waiting.rewarded()
        if given is None:
            fix = "reward a session after its agent has got an answer"
            raise ResetNeeded("there is no turn to reward", where=f"session {self.head.id}", fix=fix)
        given.turn = replace(given.turn, reward=given.turn.reward + value)

    def note(self, **metadata: Any) -> None:
        """Keep small JSON-able facts; they stand in the trace on the next turn that is written.

        Raises:
            ResetNeeded: The session has ended.
        """
        self._require_open()
        self._notes |= metadata

    def end(self, status: Status = "done", success: bool | None = None, failure: Failure | None = None) -> None:
        """Write all turns and the end; what is still being drawn has to be broken off first."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._flush(last=True)
        if self.broken is not None and failure is None:
            status, failure = "failed", Failure("store", type(self.broken).__name__, str(self.broken))
        self._write(lambda: self._store.finish(self.head.id, status, success, failure))

    @property
    def turns(self) -> int:
        """Turns so far."""
        return len(self._lineage)

    # ---- retries

    def _retry(self, evidence: Evidence) -> tuple[str, str]:
        """Return what shows that a request was sent before, and why its answer may not count."""
        key, body = evidence.key, evidence.body
        if key and self._keys.get(key, body) != body:
            raise BadAsk("this key names another request", where="idempotency-key", fix="take a new key")
        named = "idempotency_key" if key in self._keys else "retry_header" if evidence.retries else ""
        if not named or body not in self._seen:
            return named, ""
        for draft in self.drawing:
            if draft.evidence.body == body:
                draft.cancel()  # nobody waits for it any more
                return named, ""
        return named, "asked for again, after the first answer had been counted"

    def _edge(self, prepared: Prepared) -> Edge:
        """Return how a context came about, for a turn of its own; another attempt at a turn is a retry of that."""
        edge = classify(self._lineage, prepared.context, prepared.conversation).edge
        if edge.kind == "continuation" and prepared.source is None:
            # Rendered, to the very ids: a bridge from the messages need not give them, the rendering does.
            edge = replace(edge, kind="rerender", reason=_joined(prepared.reason, "the same ids", edge.reason))
        elif edge.kind == "retry" and prepared.source is not None:
            # It was asked before, and goes on from where that went on from: this says which messages made it.
            source, reason = prepared.source.turn.index, f"asked before as turn {edge.source}"
            edge = Edge("continuation", source, len(self._lineage), reason, declared=False)
        elif prepared.reason and edge.source is not None:
            edge = replace(edge, reason=_joined(prepared.reason, edge.reason))
        return edge

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
        if self.broken is None:
            self._journal.put(job, self._break)

    def _break(self, error: Exception) -> None:
        self.broken = self.broken or error


def _joined(*reasons: str) -> str:
    return ", ".join(filter(None, reasons))
