"""A world of numbered rooms on any chat format, conversations made by hand, and what must hold of every rewrite."""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from play import Script

from agentgym_tok import ChatFormat, Completion, Context, Message, Request
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.harness import Compaction, Conversation, Harness
from agentgym_tok.tokens import TURN_ORIGINS, Span, as_ids
from agentgym_tok.trace import Episode, TraceStore, Turn, account, rows, verify

REWRITES = frozenset({"compaction", "strip_reasoning"})


class Rooms:
    """Say how many steps were made, and what was said last."""

    source = "rooms"

    def __init__(self) -> None:
        self._steps = 0

    def tasks(self) -> Sequence[str]:
        return ("walk", "run")

    def reset(self, task: str | None = None) -> TextObservation:
        self._task, self._steps = task or "walk", 0
        return TextObservation("You are in room 0. Go as far as you can.")

    def step(self, command: str) -> TextObservation:
        self._steps += 1
        return TextObservation(f"You are in room {self._steps} now; you came by {command[:20]!r}.", valid=True)

    def clone(self) -> Self:
        twin = type(self)()
        twin._task, twin._steps = self._task, self._steps
        return twin

    def task_info(self) -> Mapping[str, Any]:
        return {"task": self._task}

    def expert_command(self) -> str | None:
        return "go on"


def sampled(ids: Sequence[int], request: Request) -> Completion:
    """Return a sampled turn, with log-probabilities that no other turn has."""
    logprobs_T = -np.random.default_rng(request.seed + 1).random(len(ids)).astype(np.float32)
    return Completion(as_ids(list(ids)), logprobs_T, logprobs="raw", engine="scene", sampling=request.sampling)


def goes(chat: ChatFormat, request: Request) -> Completion:
    """Say a command that is another one in each turn."""
    return sampled(chat.encode_turn(f"<action>go to room {request.seed % 997}</action>").tolist(), request)


def policy(
    chat: ChatFormat,
    asked: str,
    summary: Callable[[Request], Completion],
    turn: Callable[[ChatFormat, Request], Completion] = goes,
) -> Script:
    """Return a policy that answers where a summary is asked for, which is where the words of that stand, and acts."""
    return Script(lambda request: summary(request) if asked in chat.decode(request.ids_T) else turn(chat, request))


def play(
    run: Path,
    chat: ChatFormat,
    speaker: Script,
    compaction: Compaction,
    *,
    max_steps: int = 6,
    max_context: int = 32_768,
    **options: Any,
) -> Episode:
    """Play one episode into a store, prove it, and return it as it was read back."""
    with TraceStore(run, chat=chat) as store:
        harness = Harness(speaker, chat, store=store, compaction=compaction, **options)
        env = TokenEnv(Rooms(), chat, max_steps=max_steps, max_context=max_context)
        harness.run(env, seed=3, task=0)
        (episode,) = store.episodes()
    check(run, chat, episode)
    return episode


def check(run: Path, chat: ChatFormat, episode: Episode) -> None:
    """Assert what holds of every episode that was rewritten."""
    found = verify(run, chat)
    assert found.ok, found.breaches
    assert account(episode).complete
    assert stored_nodes(run) == len(nodes_of(episode))
    for turn in episode.turns:
        if turn.edge.kind in REWRITES:
            check_rewrite(episode, turn)
    for turn in episode.turns:
        check_trained_once(episode, turn)


def check_rewrite(episode: Episode, turn: Turn) -> None:
    """Assert that the context of a rewrite holds earlier turns, id for id and in order, and says why it is one."""
    assert turn.edge.declared
    assert turn.edge.reason
    assert turn.edge.source is not None
    used = {earlier.index: earlier for earlier in episode.turns if earlier.used and earlier.index < turn.index}
    places = []
    for span in turns_in(turn.context):
        (index,) = [index for index, earlier in used.items() if holds(earlier, span, turn.edge.kind)]
        places.append(index)
    said = [place for place in places if used[place].facts.get("aside") != "summary"]
    assert said == sorted(set(said))
    assert len(places) - len(said) <= 1
    if len(places) > len(said):
        assert used[places[0]].facts["aside"] == "summary"


def holds(earlier: Turn, span: Span, kind: str) -> bool:
    """Tell whether a span is a turn's ids with its log-probabilities; behind its reasoning, where that may be gone."""
    ids, logprobs = earlier.completion.ids_T, earlier.completion.logprobs_T
    assert span.logprobs_T is not None
    if logprobs is None or not len(span):
        return False
    start = len(ids) - len(span) if kind == "strip_reasoning" else 0
    return start >= 0 and np.array_equal(ids[start:], span.ids_T) and np.array_equal(logprobs[start:], span.logprobs_T)


def check_trained_once(episode: Episode, turn: Turn) -> None:
    """Assert that each id of a turn that counts has mask 1 in one row, behind exactly its context, and no other."""
    places = [(row, np.flatnonzero(row.mask_T & (row.turn_T == turn.index))) for row in rows(episode)]
    trained = [(row, place) for row, place in places if len(place)]
    if not turn.used or not len(turn.completion.ids_T):
        assert not [1 for row, place in trained if np.array_equal(row.ids_T[place], turn.completion.ids_T)]
        return
    ((row, place),) = trained
    assert place.tolist() == list(range(len(turn.context), len(turn.context) + len(turn.completion.ids_T)))
    assert np.array_equal(row.ids_T[: place[0]], turn.context.ids)
    assert np.array_equal(row.ids_T[place], turn.completion.ids_T)


def turns_in(context: Context) -> list[Span]:
    return [span for span in context.spans if span.origin in TURN_ORIGINS]


def nodes_of(episode: Episode) -> set[tuple[Any, ...]]:
    """Return every beginning of every context and answer: what a store that shares nodes holds once."""
    found = set()
    for turn in episode.turns:
        completion = turn.completion
        answer = Span(completion.ids_T, completion.origin, completion.logprobs_T)
        chain: tuple[Any, ...] = (turn.context.root.tools_digest,)
        for span in (*turn.context.spans, answer):
            logprobs = None if span.logprobs_T is None else span.logprobs_T.tobytes()
            chain = (*chain, (span.origin, span.ids_T.tobytes(), logprobs))
            found.add(chain)
    return found


def stored_nodes(run: Path) -> int:
    with contextlib.closing(sqlite3.connect(run / "shards" / "main.sqlite")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM nodes").fetchone()
    return int(count)


def conversation(chat: ChatFormat, *turns: Sequence[int]) -> Conversation:
    """Return a conversation in which turns were answered by a word each."""
    opening = (Message("system", "Walk."), Message("user", "You are in room 0."))
    made = Conversation(chat, chat.open(opening), opening)
    for number, ids in enumerate(turns):
        answered = made.context.sampled(as_ids(list(ids)), [-0.5 - number] * len(ids))
        messages = [Message("user", f"You are in room {number + 1}.")]
        context = chat.bridge(answered, messages)
        assert isinstance(context, Context), context
        made = made.followed(answered, chat.parse(answered.span.ids_T).message(), messages, context)
    return made
