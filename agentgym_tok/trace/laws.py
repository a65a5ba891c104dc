"""The laws as checks of one rollout, each from what is stored alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Context, Ids, Origin, Span
from agentgym_tok.trace.accounting import Accounting, account_rows
from agentgym_tok.trace.records import EdgeKind, Episode, Row, RunMeta, Turn, sent_digest
from agentgym_tok.trace.rows import Objective, family, mask_reason, rows
from agentgym_tok.types import Message

__all__ = [
    "Breach",
    "Key",
    "ReplayChat",
    "check_accounting",
    "check_answers",
    "check_continuations",
    "check_failure",
    "check_fingerprint",
    "check_sent",
    "replay",
]

Key: TypeAlias = tuple[str, bytes]
"""Names an answer: `sent_digest` of what it follows, and its ids as int32."""

_POLICY: frozenset[Origin] = frozenset({"sampled", "demonstration"})
_REWRITES: frozenset[EdgeKind] = frozenset(
    {"compaction", "strip_reasoning", "retry", "system_swap", "tools_change", "auxiliary", "unknown"}
)
"""Edges to contexts that may hold parts of earlier answers, id for id, behind another beginning."""
_GOES_ON: frozenset[EdgeKind] = frozenset({"continuation", "subagent_return"})
"""Edges to contexts that begin with all ids of the turn before, and its answer."""

RECORD = 0
"""Number of the promise under all laws: the file is what was written."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Say what is wrong, and where.

    Args:
        law: 1 to 6; 0 where the record itself is damaged.
        episode: Its id; empty where the whole shard is meant.
        turn: Index of the turn; None where the whole episode is meant.
        message: What is wrong.
    """

    law: int
    episode: str
    turn: int | None
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {"law": self.law, "episode": self.episode, "turn": self.turn, "message": self.message}


class ReplayChat(Protocol):
    """Make ids of messages again; `ChatFormat` does."""

    @property
    def fingerprint(self) -> str:
        """Of tokenizer, template and settings."""
        ...

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that world text never yields."""
        ...

    def open(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> Context:
        """Render a new conversation."""
        ...

    def bridge(self, context: Context, messages: Sequence[Message]) -> object:
        """Return the context that goes on with messages, or something that is none and says why."""
        ...


def check_continuations(episode: Episode) -> Iterator[Breach]:
    """Law 1: what goes on from a turn begins with the ids that were sampled and all that stood before them."""
    steps = {turn.index: turn for turn in episode.steps}
    attempts = {(turn.index, turn.attempt): turn for turn in episode.turns}
    for turn in episode.turns:
        source = turn.edge.source
        if source == turn.index:
            earlier = attempts.get((turn.index, turn.attempt - 1))
            if earlier is None or turn.context.digest != earlier.context.digest:
                yield Breach(1, episode.id, turn.index, f"attempt {turn.attempt} does not repeat the context before it")
        elif turn.edge.kind in _GOES_ON:
            earlier = None if source is None else steps.get(source)
            if earlier is None:
                yield Breach(1, episode.id, turn.index, f"goes on from turn {source}, which is not there")
                continue
            place = first_difference(turn.context.ids, answered(earlier).ids)
            if place is not None:
                message = f"leaves the ids of turn {source} at token {place}"
                yield Breach(1, episode.id, turn.index, message)


def check_sent(episode: Episode) -> Iterator[Breach]:
    """Law 2: the stored context is what the engine was handed. No `Completion` exists that is not whole."""
    for turn in episode.turns:
        if turn.sent_digest != turn.context.digest and "ids" not in turn.redacted:
            message = f"the engine was handed ids {turn.sent_digest}, the context has {turn.context.digest}"
            yield Breach(2, episode.id, turn.index, message)


def check_answers(episode: Episode) -> Iterator[tuple[Key, Breach]]:
    """Law 3: ids that a policy or an expert wrote stand in a context because some turn has answered with them.

    Behind the answer that it goes on from, a continuation holds none; a new prompt holds none at all. Where a rewrite
    keeps parts of earlier answers, those are accounted for where they were given. Only the past of a rollout that began
    with a copy of another one, in mid-episode, is accounted for elsewhere in the run.

    Yields:
        An answer that this episode lacks, and the breach that it is unless another episode of the run has it.
    """
    steps = {turn.index: turn for turn in episode.steps}
    given: set[Key] = set()
    answers: list[Ids] = []
    for turn in episode.turns:
        edge, context, ids_T = turn.edge, turn.context, turn.completion.ids_T
        # A resample repeats the context of the attempt before it; of ids that were taken out nothing can be said.
        if edge.source != turn.index and "ids" not in turn.redacted:
            source = steps.get(edge.source) if edge.kind in _GOES_ON and edge.source is not None else None
            known = 0 if source is None else len(source.context) + len(source.completion.ids_T)
            for start, part_T in _written(context, known):
                if edge.kind in _REWRITES and any(_contains(answer_T, part_T) for answer_T in answers):
                    continue
                key = (sent_digest(context.root, context.ids[:start]), part_T.tobytes())
                if key not in given:
                    message = f"{len(part_T)} ids from token {start} of the context on are the answer of no turn"
                    yield key, Breach(3, episode.id, turn.index, message)
        given.add((context.digest, ids_T.tobytes()))
        answers.append(ids_T)


def _written(context: Context, known: int) -> list[tuple[int, Ids]]:
    """Return where ids of policies and experts begin behind the first `known` ones, and each unbroken run of them."""
    runs: list[tuple[int, int]] = []
    for ancestor in context.lineage():
        end = len(ancestor)
        if end <= known:
            break
        start = max(known, end - len(ancestor.span))
        if ancestor.span.origin in _POLICY and start < end:
            # An answer may have been cut into several spans.
            last = runs.pop()[1] if runs and runs[-1][0] == end else end
            runs.append((start, last))
    return [(start, context.ids[start:end]) for start, end in reversed(runs)]


def _contains(answer_T: Ids, part_T: Ids) -> bool:
    if len(part_T) > len(answer_T):
        return False
    windows = np.lib.stride_tricks.sliding_window_view(answer_T, len(part_T))
    return bool((windows == part_T).all(axis=1).any())


def check_accounting(episode: Episode, objective: Objective) -> tuple[Accounting, list[Breach]]:
    """Law 3: every id is trained once, in its very context, or masked with a reason."""
    made = rows(episode, objective=objective)
    accounting = account_rows(episode, made, objective)
    breaches = []
    if not accounting.complete:
        message = f"{accounting.unaccounted} ids are not accounted for under {objective}"
        breaches.append(Breach(3, episode.id, None, message))
    turns = {
        (member.id, turn.index): turn
        for member in family(episode)
        for turn in member.turns
        if mask_reason(turn, objective) is None and len(turn.completion.ids_T)
    }
    for row in made:
        for index in np.unique(row.turn_T[row.mask_T]).tolist():
            turn = turns.pop((row.rollout_id, index), None)
            if turn is None or not _holds(row, turn):
                message = f"a row under {objective} does not hold the turn in its context"
                breaches.append(Breach(3, row.rollout_id, index, message))
    for name, index in turns:
        breaches.append(Breach(3, name, index, f"no row under {objective} trains the turn"))
    return accounting, breaches


def _holds(row: Row, turn: Turn) -> bool:
    """Say whether a row trains exactly a turn's answer, right after exactly its context."""
    start, end = len(turn.context), len(turn.context) + len(turn.completion.ids_T)
    logprobs_T = turn.completion.logprobs_T
    return (
        np.array_equal(np.flatnonzero(row.turn_T == turn.index), np.arange(start, end))
        and bool(row.mask_T[start:end].all())
        and np.array_equal(row.ids_T[:end], answered(turn).ids)
        and (logprobs_T is None or np.array_equal(row.logprobs_T[start:end], logprobs_T))
    )


def replay(episode: Episode, chat: ReplayChat) -> Iterator[Breach | None]:
    """Law 4: what was added to each context is what the chat format makes of the recorded messages.

    Yields:
        For each attempt a breach, or None where the replay is equal. Nothing where the messages do not say what the
        context should be: there are none, some were taken out, or the context is a chain that somebody rewrote or
        copied, which no rendering makes. Such attempts are not replayed, and `verify` counts them.
    """
    steps = {turn.index: turn for turn in episode.steps}
    first = {turn.index: turn for turn in reversed(episode.turns)}
    for turn in episode.turns:
        # An attempt that samples the same context again was prepared by what the first attempt was prepared by.
        origin = first[turn.index] if turn.edge.source == turn.index else turn
        if "ids" in turn.redacted or "texts" in origin.redacted:
            continue
        source = None if origin.edge.source is None else steps.get(origin.edge.source)
        context = _without_prefill(turn.context)
        goes_on = origin.edge.kind in _GOES_ON and source is not None
        if not origin.messages or not (goes_on or context.parent is None):
            continue
        made: object
        try:
            if goes_on and source is not None:
                made = chat.bridge(answered(source), origin.messages)
            else:
                made = chat.open(origin.messages, context.root.tools)
        except ChatError as error:
            made = error
        problem = _replay_problem(context, made, chat.control_ids)
        yield None if problem is None else Breach(4, episode.id, turn.index, problem)


def _replay_problem(context: Context, made: object, control_ids: frozenset[int]) -> str | None:
    if not isinstance(made, Context):
        return f"the chat format refuses the messages: {made}"
    place = first_difference(context.ids, made.ids)
    if place is None:
        place = len(made)
    stored, replayed = context.ids[place : place + 1].tolist(), made.ids[place : place + 1].tolist()
    if stored == replayed:
        return None
    control = ", a control token" if control_ids.intersection(stored) else ""
    return f"token {place} is {stored or 'missing'}{control}; the messages make {replayed or 'an end'}"


def _without_prefill(context: Context) -> Context:
    while context.span.origin == "forced" and context.parent is not None:
        context = context.parent
    return context


def check_fingerprint(episode: Episode, meta: RunMeta) -> Iterator[Breach]:
    """Law 5: all ids of a run belong to one tokenizer, template and setting."""
    for turn in episode.turns:
        root = turn.context.root
        if (root.fingerprint, root.vocab_size) != (meta.fingerprint, meta.vocab_size):
            message = f"fingerprint {root.fingerprint[:16]} in a run of {meta.fingerprint[:16]}"
            yield Breach(5, episode.id, turn.index, message)
        highest = max(
            (int(ids_T.max()) for ids_T in (turn.context.ids, turn.completion.ids_T) if len(ids_T)), default=0
        )
        if highest >= meta.vocab_size:
            yield Breach(5, episode.id, turn.index, f"id {highest} is outside a vocabulary of {meta.vocab_size}")


def check_failure(episode: Episode) -> Iterator[Breach]:
    """Law 6: a failed episode says at which boundary it failed."""
    if (episode.status == "failed") != (episode.failure is not None):
        yield Breach(
            6, episode.id, None, f"status {episode.status} {'with' if episode.failure else 'without'} a failure"
        )


def answered(turn: Turn) -> Context:
    """Return a turn's context together with its completion."""
    completion = turn.completion
    return turn.context.extend(Span(completion.ids_T, completion.origin, completion.logprobs_T))


def first_difference(ids_T: Ids, beginning_T: Ids) -> int | None:
    """Return the first place where ids do not begin as they should; None where they do."""
    length = min(len(ids_T), len(beginning_T))
    different = np.flatnonzero(ids_T[:length] != beginning_T[:length])
    if len(different):
        return int(different[0])
    return None if len(ids_T) >= len(beginning_T) else length
