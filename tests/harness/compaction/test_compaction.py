"""Compactions of all kinds, and of one's own: whatever is said, ids are kept, and what fails costs its episode."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from play import Script
from scene import Rooms, check, conversation, goes, play, sampled, turns_in

from agentgym_tok import ChatFormat, Completion, Message, Request
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import TraceError
from agentgym_tok.harness import (
    Conversation,
    Draw,
    Exchange,
    Harness,
    Observer,
    Rewrite,
    StripReasoning,
    SummaryCompaction,
    Trigger,
    WindowCompaction,
)
from agentgym_tok.trace import TraceStore, Turn

COMPACTIONS = (
    SummaryCompaction(at_turns=2),
    SummaryCompaction(at_turns=3, keep=2, attempts=1),
    SummaryCompaction(at_tokens=120, keep=0),
    WindowCompaction(at_turns=2, keep=0),
    WindowCompaction(at_turns=3, keep=2),
    WindowCompaction(at_tokens=120, keep=1),
    StripReasoning(at_turns=1),
    StripReasoning(at_turns=2, keep=1),
)


def says_anything(chat: ChatFormat) -> Callable[[Request], Completion]:
    """Say any ids of the vocabulary, thoughts among them, closed or not: drawn from the request's seed."""

    def say(request: Request) -> Completion:
        draw = np.random.default_rng(request.seed)
        ids: list[int] = draw.integers(chat.vocab_size, size=draw.integers(1, 9)).tolist()
        if draw.random() < 0.5:
            ids = [
                *chat.encode_turn(f"<think>{chat.decode(np.asarray(ids[:3], np.int32))}</think>")[:-1].tolist(),
                *ids,
            ]
        return sampled([*ids, chat.stop_ids[0]] if draw.random() < 0.6 else ids, request)

    return say


@settings(max_examples=12)
@given(seed=st.integers(0, 2**31), compaction=st.sampled_from(COMPACTIONS))
def test_whatever_is_said_every_rewrite_keeps_ids_and_laws(
    chat: ChatFormat, tmp_path_factory: pytest.TempPathFactory, seed: int, compaction: Any
) -> None:
    run = tmp_path_factory.mktemp("run")
    with TraceStore(run, chat=chat) as store:
        harness = Harness(Script(says_anything(chat)), chat, store=store, compaction=compaction)
        harness.run(TokenEnv(Rooms(), chat, max_steps=7), seed=seed, task=0)
        (episode,) = store.episodes()
    check(run, chat, episode)


@pytest.mark.parametrize(
    ("trigger", "turns", "due"),
    [
        (Trigger(at_turns=2), 1, False),
        (Trigger(at_turns=2), 2, True),
        (Trigger(at_tokens=1), 1, True),
        (Trigger(at_tokens=10_000), 3, False),
        (Trigger(at_tokens=10_000, at_turns=3), 3, True),
        (Trigger(at_turns=9), 3, False),
        (Trigger(), 3, True),
        (Trigger(), 0, False),
    ],
)
def test_either_limit_makes_it_due(builtin: ChatFormat, trigger: Trigger, turns: int, due: bool) -> None:
    talk = conversation(builtin, *[builtin.encode_turn("go north").tolist()] * turns)
    most = int(len(conversation(builtin, *[builtin.encode_turn("go north").tolist()] * 3).context) / 0.75)
    assert trigger.due(talk, most) is due


# ---- one's own


class Forgetful:
    """Forget each turn's reason to be: keep the last exchange only, and say in words that there were others."""

    def due(self, conversation: Conversation, max_context: int) -> bool:
        return conversation.fresh >= 3

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        *gone, last = conversation.exchanges
        opening = (*conversation.opening[:-1], Message("user", f"{len(gone)} steps are forgotten. You are on a walk."))
        first = conversation.chat.open(opening, conversation.first.root.tools)
        made = Conversation(conversation.chat, first, opening).rebuilt([last])
        return Rewrite(made, "compaction", "forgetful") if isinstance(made, Conversation) else None


def test_a_compaction_of_ones_own_is_a_class_of_two_methods(chat: ChatFormat, tmp_path: Path) -> None:
    episode = play(tmp_path, chat, Script(lambda request: goes(chat, request)), Forgetful(), max_steps=8)
    rewritten = [turn for turn in episode.turns if turn.edge.kind == "compaction"]
    assert [(turn.index, turn.edge.source, turn.edge.reason) for turn in rewritten] == [
        *[(3, 2, "forgetful"), (6, 5, "forgetful")]
    ]
    for turn in rewritten:
        before = episode.turns[turn.index - 1]
        assert [span.ids_T.tolist() for span in turns_in(turn.context)] == [before.completion.ids_T.tolist()]
    assert "3 steps are forgotten" in chat.decode(rewritten[1].context.ids)


class Asking(Forgetful):
    """Ask the policy for a word, and judge it."""

    def __init__(self, judge: Callable[[Completion], str | None]) -> None:
        self._judge = judge

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        last = conversation.exchanges[-1]
        messages = [Message("user", "Say a word.")]
        asked = conversation.chat.bridge(last.answered, messages)
        await draw(asked, messages, self._judge, attempts=3, max_tokens=5)  # type: ignore[arg-type]
        return None


def test_a_judge_of_ones_own_is_heard(builtin: ChatFormat, tmp_path: Path) -> None:
    seen: list[Completion] = []

    def judge(answer: Completion) -> str | None:
        seen.append(answer)
        return None if len(seen) == 2 else "another one, please"

    speaker = Script(lambda request: goes(builtin, request))
    episode = play(tmp_path, builtin, speaker, Asking(judge), max_steps=4)
    aside = [turn for turn in episode.turns if turn.facts.get("aside") == "summary"]
    assert [(turn.used, turn.facts.get("refused")) for turn in aside] == [(False, "another one, please"), (True, None)]
    assert {request.sampling.max_tokens for request in speaker.asked} == {5, 256}


# ---- what fails


class Failing:
    """Fail at one of the two methods, for those who go somewhere."""

    def __init__(self, where: str) -> None:
        self._where = where

    def due(self, conversation: Conversation, max_context: int) -> bool:
        self._fail("due", conversation)
        return conversation.fresh >= 2

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        self._fail("compact", conversation)
        return None

    def _fail(self, where: str, conversation: Conversation) -> None:
        if where == self._where and "go to room" in conversation.exchanges[0].said.content:
            raise ZeroDivisionError("no such share")


@pytest.mark.parametrize("where", ["due", "compact"])
def test_a_compaction_that_fails_costs_its_episode_and_not_the_batch(
    builtin: ChatFormat, tmp_path: Path, where: str
) -> None:
    def say(request: Request) -> Completion:
        first = speaker.asked[0].conversation
        if request.conversation == first:
            return goes(builtin, request)
        return sampled(builtin.encode_turn("<action>stay</action>").tolist(), request)

    speaker = Script(say)
    with TraceStore(tmp_path, chat=builtin) as store:
        harness = Harness(speaker, builtin, store=store, compaction=Failing(where))
        harness.run_many(lambda: TokenEnv(Rooms(), builtin, max_steps=4), [0, 1])
        episodes = list(store.episodes())
    assert [(episode.status, len(episode.turns)) for episode in episodes] == [
        *[("failed", 1 if where == "due" else 2), ("done", 4)]
    ]
    failure = episodes[0].failure
    assert failure is not None
    assert (failure.boundary, failure.kind, failure.message) == ("harness", "ZeroDivisionError", "no such share")


def test_a_turn_that_was_drawn_stays_where_its_judge_fails(builtin: ChatFormat, tmp_path: Path) -> None:
    def judge(answer: Completion) -> str | None:
        raise ZeroDivisionError("no such share")

    episode = play(tmp_path, builtin, Script(lambda request: goes(builtin, request)), Asking(judge))
    assert [(turn.index, turn.used) for turn in episode.turns] == [(0, True), (1, True), (2, True), (3, False)]
    assert len(episode.turns[3].completion.ids_T)
    assert episode.failure is not None
    assert episode.failure.boundary == "harness"


class Watching(Observer):
    """Fail at the first summary."""

    def on_turn(self, turn: Turn) -> None:
        if turn.facts.get("aside") == "summary":
            raise ZeroDivisionError("of the observer")


def test_what_ends_a_run_ends_it_from_within_a_compaction_too(
    builtin: ChatFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(request: Request) -> Completion:
        return goes(builtin, request)

    with TraceStore(tmp_path, chat=builtin) as store:
        watched = Harness(
            Script(say), builtin, store=store, compaction=SummaryCompaction(at_turns=2), observers=[Watching()]
        )
        with pytest.raises(ZeroDivisionError, match="of the observer"):
            watched.run(TokenEnv(Rooms(), builtin), task=0)
        append = store.append

        def refuse(turn: Turn) -> None:
            if turn.facts.get("aside") == "summary":
                raise TraceError("the disk is full")
            append(turn)

        monkeypatch.setattr(store, "append", refuse)
        full = Harness(Script(say), builtin, store=store, compaction=SummaryCompaction(at_turns=2))
        with pytest.raises(TraceError, match="full"):
            full.run(TokenEnv(Rooms(), builtin), seed=1, task=0)
        assert [episode.status for episode in store.episodes()] == ["abandoned"] * 2


def test_exchanges_can_be_made_by_hand(builtin: ChatFormat) -> None:
    talk = conversation(builtin, *[builtin.encode_turn("go").tolist()] * 2)
    replaced: Sequence[Exchange] = [
        Exchange(one.answered, one.said, (Message("user", "Go on."),), one.context) for one in talk.exchanges
    ]
    made = talk.rebuilt(replaced)
    assert isinstance(made, Conversation)
    assert builtin.decode(made.context.ids).count("Go on.") == 2
