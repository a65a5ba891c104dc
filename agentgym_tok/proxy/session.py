"""A session of a foreign agent: an episode whose turns come as requests, each with its whole conversation."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ResetNeeded, TraceError
from agentgym_tok.proxy.attempts import Attempt, Attempts, Delivery
from agentgym_tok.proxy.contexts import Contexts, Given, Prepared, same_answer
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.wire import Ask, BadAsk
from agentgym_tok.seeds import derive_seed
from agentgym_tok.trace import Edge, EpisodeHead, Failure, Lineage, Status, TraceStore, Turn, classify, sent_digest
from agentgym_tok.types import Completion, Message

__all__ = ["RETRY_WINDOW_S", "Answer", "Draft", "Evidence", "Session"]

RETRY_WINDOW_S = 30.0
"""So long after an answer a client may still ask for it again, in seconds; SDKs wait for 8 at most."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what a request says of itself, beside its body.

    Args:
        body: Digest of its path and body.
        key: Its idempotency key.
        retries: How often its client sent it before, as the SDKs say.
        request_id: The client's name of it.
        agent: The client's name of the agent that asks.
    """

    body: bytes
    key: str = ""
    retries: int = 0
    request_id: str = ""
    agent: str = ""


@dataclass(slots=True, eq=False)
class Draft:
    """Hold a turn that is being drawn.

    Args:
        ask: The request, with its whole conversation.
        evidence: What it says of itself.
        prepared: What the engine gets.
        edge: How its context came about; where it leads is known once it is recorded.
        number: Of the request in its session.
        again: The turn that the client asks for once more.
        retry: What shows that it does.
        doubt: See `Attempts.doubt`.
        started: Unix time in seconds.
        cancel: Breaks it off.
    """

    ask: Ask
    evidence: Evidence
    prepared: Prepared
    edge: Edge
    number: int
    again: Attempts | None
    retry: str
    doubt: str
    started: float = field(default_factory=time.time)
    cancel: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Hold what became of one choice.

    Args:
        completion: What the engine drew; as far as it came, where it was broken off.
        told: What the client is told.
        failure: Why there is no turn.
        told_tokens: Ids of which the client saw what they say; None where it was to get all.
    """

    completion: Completion
    told: Message
    failure: Failure | None = None
    told_tokens: int | None = None


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
        self._waiting: deque[Attempts] = deque()
        self._seen: dict[bytes, int] = {}
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
        self._require_open()
        self.active = time.monotonic()
        ask = self._whole(ask)
        retry, doubt = self._retry(evidence)
        again = self._asked_again(evidence, explicit=bool(retry))
        prepared = self._contexts.prepare(ask.messages, ask.tools)
        self._note_taken(prepared)
        if again is None:
            self._settle(alone=not self.drawing)
        edge = self._edge(prepared)
        if again is not None:
            again.ended = 0.0  # an answer is on its way once more
            retry = retry or "same_body"
            edge = Edge("retry", again.index, again.index, retry, declared=retry != "same_body")
        number, self._requests = self._requests, self._requests + 1
        self._seen[evidence.body] = number
        if evidence.key:
            self._keys[evidence.key] = evidence.body
        draft = Draft(ask, evidence, prepared, edge, number, again, retry, "" if again else doubt)
        self.drawing.add(draft)
        return draft

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
        turns = self._place(draft)
        recorded = []
        for choice, answer in enumerate(answers):
            given = Given(self._turn(draft, turns, answer, choice), answer.told)
            attempt = Attempt(given, len(answers))
            turns.attempts.append(attempt)
            recorded.append(attempt)
            self._lineage.add(given.turn)
            if attempt.is_turn:
                self._contexts.add(draft.prepared.conversation, given, draft.ask.tools)
        self._refresh(turns)
        if draft.ask.protocol == "openai_responses" and len(answers) == 1:
            self._responses[reply_id] = (*draft.ask.messages[draft.ask.lead :], answers[0].told)
        self._flush()
        return recorded

    def deliver(self, recorded: Sequence[Attempt], delivery: Delivery) -> None:
        """Say how much of an answer the client got."""
        turns = self._turns_of(recorded[0].given)
        if turns is None:
            return
        for attempt in recorded:
            attempt.delivery = delivery
        turns.end()
        self._refresh(turns)

    def reap(self) -> None:
        """Write what no client will ask for again."""
        self._settle(alone=False)
        self._flush()

    # ---- what others say of the session

    def reward(self, value: float) -> None:
        """Add a reward to the newest turn that the client used.

        Raises:
            ResetNeeded: There is none, or the session has ended.
            TraceError: The store did not take an earlier turn.
        """
        self._require_open()
        turns = next((turns for turns in reversed(self._waiting) if turns.used), None)
        if turns is None or turns.used is None:
            fix = "reward a session after its agent has got an answer"
            raise ResetNeeded("there is no turn to reward", where=f"session {self.head.id}", fix=fix)
        given = turns.used.given
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
        for turns in self._waiting:
            turns.settled = True
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

    def _asked_again(self, evidence: Evidence, *, explicit: bool) -> Attempts | None:
        """Return the turn whose answer went out, or was broken off, and that a client asks for once more."""
        for turns in reversed(self._waiting):
            if turns.body == evidence.body and (turns.ended or explicit) and not turns.settled and not turns.taken:
                return turns
        return None

    # ---- turns that wait

    def _place(self, draft: Draft) -> Attempts:
        """Return where a turn belongs: to the attempts before it, or to a place of its own."""
        again, evidence = draft.again, draft.evidence
        if again is not None and not again.settled:
            last = again.index == len(self._lineage) - 1
            if last and again.attempts[-1].given.turn.context.digest == draft.prepared.context.digest:
                return again
            again.doubt = "asked for again"
            self._refresh(again)
        turns = Attempts(len(self._lineage), evidence.body, evidence.key, doubt=draft.doubt)
        self._waiting.append(turns)
        return turns

    def _edge(self, prepared: Prepared) -> Edge:
        edge = classify(self._lineage, prepared.context, prepared.conversation).edge
        if edge.kind == "continuation" and prepared.source is None:
            # Rendered, to the very ids: a bridge from the messages need not give them, the rendering does.
            reason = ", ".join(filter(None, (prepared.reason, "the same ids", edge.reason)))
            edge = replace(edge, kind="rerender", reason=reason)
        elif prepared.reason and edge.source is not None:
            edge = replace(edge, reason=", ".join(filter(None, (prepared.reason, edge.reason))))
        return edge

    def _turn(self, draft: Draft, turns: Attempts, answer: Answer, choice: int) -> Turn:
        prepared, completion = draft.prepared, answer.completion
        attempt = len(turns.attempts)
        edge = replace(draft.edge, target=turns.index)
        if attempt:
            edge = Edge("retry", turns.index, turns.index, draft.retry or "another choice", declared=bool(draft.retry))
        news = prepared.news if edge.kind == "continuation" else prepared.conversation
        return Turn(
            episode=self.head.id,
            index=turns.index,
            context=prepared.context,
            sent_digest=sent_digest(prepared.context.root, prepared.context.ids),
            completion=completion,
            edge=edge,
            messages=() if attempt else news,
            text=self._chat.decode(completion.ids_T),
            attempt=attempt,
            used=False,
            seed=self.seed(draft, choice),
            started=draft.started,
            ended=time.time(),
            failure=answer.failure,
            facts=_facts(draft, answer),
        )

    def _note_taken(self, prepared: Prepared) -> None:
        """Find out from a conversation which waiting answers its client used."""
        for turns in self._waiting:
            found = [
                attempt
                for attempt in turns.attempts
                if attempt.given is prepared.source or _quotes(prepared.conversation, attempt.given.told)
            ]
            source = [attempt for attempt in found if attempt.given is prepared.source]
            if turns.taken is None and len(source or found) == 1:
                turns.taken = (source or found)[0]
                self._refresh(turns)

    def _refresh(self, turns: Attempts) -> None:
        """Let everybody know which attempt counts as used now."""
        used = turns.used
        for attempt in turns.attempts:
            given = attempt.given
            if given.turn.used != (attempt is used):
                given.turn = replace(given.turn, used=attempt is used)
                self._lineage.settle(given.turn)

    def _settle(self, *, alone: bool) -> None:
        """Settle what a client that goes on with something else will not ask for again."""
        now = time.monotonic()
        for turns in self._waiting:
            turns.settled |= bool(turns.ended) and (
                alone or turns.taken is not None or now - turns.ended > RETRY_WINDOW_S
            )

    def _flush(self, *, last: bool = False) -> None:
        """Write the settled turns; the newest used one stays, since rewards may still come for it."""
        waiting = self._waiting
        while waiting and waiting[0].settled and (last or any(later.used for later in list(waiting)[1:])):
            for turn in waiting.popleft().turns():
                noted, self._notes = self._notes, {}
                written = replace(turn, facts={**turn.facts, "session": noted}) if noted else turn
                self._write(lambda written=written: self._store.append(written))  # type: ignore[misc]

    def _turns_of(self, given: Given) -> Attempts | None:
        return next((turns for turns in self._waiting if turns.index == given.turn.index), None)

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

    def _write(self, job: Callable[[], object]) -> None:
        if self.broken is None:
            self._journal.put(job, self._break)

    def _break(self, error: Exception) -> None:
        self.broken = self.broken or error


def _quotes(conversation: Sequence[Message], told: Message) -> bool:
    says = bool(told.content.strip() or told.tool_calls)  # what says nothing is quoted by chance
    return says and any(same_answer(told, message) for message in conversation)


def _facts(draft: Draft, answer: Answer) -> dict[str, Any]:
    ask, evidence = draft.ask, draft.evidence
    facts = {
        "protocol": ask.protocol,
        "model": ask.model,
        "request": draft.number,
        "request_id": evidence.request_id,
        "agent": evidence.agent,
        "user": ask.user,
        "metadata": dict(ask.metadata),
        "ignored": list(ask.ignored),
        "tool_choice": ask.tool_name or ask.tool_choice if ask.tool_choice != "auto" else "",
        "replaced": ask.replaced or None,
        "rendered": draft.prepared.reason,
        "retry": draft.retry,
        "told_tokens": answer.told_tokens,
    }
    return {name: value for name, value in facts.items() if value or type(value) is int}
