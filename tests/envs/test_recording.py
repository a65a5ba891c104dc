"""A recorder says where each turn's context came from, whoever made it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Completion, Context, Message, Refusal, Sampling, Span
from agentgym_tok.envs import TokenEnv
from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.errors import TraceError, WorldError
from agentgym_tok.trace import Edge, EpisodeHead, RunMeta, TraceStore, account, verify

CHAT = ChatFormat.builtin()
META = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")
Make = Callable[..., TokenEnv]


def answer(text: str) -> Completion:
    ids_T = CHAT.encode_turn(f"<action>{text}</action>")
    return Completion(ids_T, [-1.0] * len(ids_T), logprobs="raw", sampling=Sampling())


class Played:
    """An episode whose turns a test records as a harness would."""

    def __init__(self, env: TokenEnv, store: TraceStore) -> None:
        self.env, self.store = env, store
        _, info = env.reset(seed=0)
        self.recorder = Recorder(env, EpisodeHead("e", "0"), info, store)

    def step(self, text: str, **options: Any) -> None:
        context, said = self.env.context, answer(text)
        self.env.adopt(context.sampled(said.ids_T, said.logprobs_T))
        _, reward, terminated, truncated, info = self.env.step(said.ids_T)
        step = StepResult(reward, terminated, truncated, info)
        self.recorder.record(context, said, sent=context.ids, step=step, **options)

    def aside(self, context: Context, text: str, **options: Any) -> None:
        self.recorder.record(context, answer(text), sent=context.ids, **options)

    def edges(self) -> list[tuple[Any, ...]]:
        return [(turn.edge.kind, turn.edge.source, turn.index, turn.attempt) for turn in self.recorder.turns]


def test_attempts_are_siblings_and_the_episode_goes_on_from_the_used_one(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        played = Played(parrot(), store)
        played.step("a")
        for attempt in range(2):
            played.aside(played.env.context, "bad", attempt=attempt, used=False)
        played.step("b", attempt=2)
        played.step("win")
        played.recorder.finish("done")
        (episode,) = store.episodes()
    assert played.edges() == [
        ("fresh_prompt", None, 0, 0),
        ("continuation", 0, 1, 0),
        ("retry", 1, 1, 1),
        ("retry", 1, 1, 2),
        ("continuation", 1, 2, 0),
    ]
    assert account(episode).masked == {"unused_attempt": 2 * len(answer("bad").ids_T)}
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == 5


def test_what_an_unused_attempt_did_in_a_copy_of_the_world_says_nothing_of_the_episode(
    parrot: Make, tmp_path: Path
) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        played = Played(parrot(), store)
        played.step("a")
        twin = played.env.clone()
        *_, terminated, truncated, info = twin.step(answer("win").ids_T)
        step = StepResult(1.0, terminated, truncated, info)
        played.aside(played.env.context, "win", step=step, used=False)
        assert played.recorder.success is False
        played.env.adopt(played.env.context.extend(Span(CHAT.encode("note"), "observation")))
        played.step("b")
    assert [edge[:3] for edge in played.edges()][1:] == [("continuation", 0, 1), ("continuation", 0, 2)]
    assert verify(tmp_path, CHAT).ok


def test_a_side_call_and_a_compaction_are_declared_and_replayed(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        played = Played(parrot(), store)
        played.step("a")
        asking = [*played.env.conversation, Message("user", "Sum up.")]
        played.aside(CHAT.open(asking), "so far", edge=Edge("auxiliary", 0, 1), messages=asking)
        played.step("b")
        shorter = [Message("user", "So far: so far")]
        played.env.adopt(CHAT.open(shorter), shorter)
        played.step("win", edge=Edge("compaction", 2, 3), messages=shorter)
    assert [edge[:3] for edge in played.edges()] == [
        ("fresh_prompt", None, 0),
        ("auxiliary", 0, 1),
        ("continuation", 0, 2),
        ("compaction", 2, 3),
    ]
    assert played.recorder.success is True
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == 4


def test_a_context_that_goes_on_from_the_last_turn_is_found_out(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        played = Played(parrot(), store)
        played.step("a")
        said = answer("think")
        played.recorder.record(played.env.context, said, sent=played.env.context.ids)
        more = CHAT.bridge(played.env.context.sampled(said.ids_T, said.logprobs_T), [Message("user", "Go on.")])
        assert not isinstance(more, Refusal)
        played.env.adopt(more)
        played.step("win")
    assert [edge[:3] for edge in played.edges()][1:] == [("continuation", 0, 1), ("continuation", 1, 2)]
    assert verify(tmp_path, CHAT).ok


def test_an_edge_that_leads_elsewhere_is_refused(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        played = Played(parrot(), store)
        with pytest.raises(TraceError, match="leads elsewhere"):
            played.aside(played.env.context, "a", edge=Edge("auxiliary", 0, 1))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_the_worlds_failure(reward: float) -> None:
    with pytest.raises(WorldError, match="no number"):
        StepResult(reward, terminated=False, truncated=False)
