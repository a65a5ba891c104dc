"""The harness: every turn logged as it was sent, failures as records, the same results in any order."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.errors import ConfigError, UnknownName
from agentgym_tok.harness import Harness
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, RunMeta, TraceStore, account, rows, verify

CHAT = ChatFormat.builtin()
META = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")


def make_env(**options: Any) -> ALFWorldEnv:
    return ALFWorldEnv(CHAT, **{"split": "valid_seen", "max_steps": 5, **options})


class Scripted(BasePolicy):
    """Say any ids at all, drawn from the request's seed; remember what was asked."""

    name = "scripted"
    deterministic = True

    def __init__(self, longest: int = 12) -> None:
        self.asked: list[Request] = []
        self.batches: list[int] = []
        self._longest = longest

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += requests
        self.batches.append(len(requests))
        return [self._turn(request) for request in requests]

    def _turn(self, request: Request) -> Completion:
        draw = np.random.default_rng(request.seed)
        ids = draw.integers(CHAT.vocab_size, size=draw.integers(1, self._longest)).tolist()
        if draw.random() < 0.5:
            ids.append(CHAT.stop_ids[0])
        return Completion(
            as_ids(ids),
            -draw.random(len(ids)).astype(np.float32),
            finish_reason="stop" if ids[-1] in CHAT.stop_ids else "length",
            logprobs="raw",
            engine="scripted",
            sampling=request.sampling,
        )


def played(episodes: Sequence[Episode]) -> list[Any]:
    return [
        (
            episode.head.task,
            episode.head.replica,
            episode.return_,
            [turn.completion.ids_T.tolist() for turn in episode.turns],
        )
        for episode in episodes
    ]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), prompting=st.sampled_from(["transcript", "step"]), group=st.integers(1, 3))
def test_arbitrary_ids_are_logged_as_sent_and_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, seed: int, prompting: str, group: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    policy = Scripted()
    with TraceStore(run, meta=META) as store:
        harness = Harness(policy, CHAT, store=store)
        made = harness.run_many(lambda: make_env(prompting=prompting), [0, 1], group_size=group, seed=seed)
        stored = list(store.episodes())
    assert played(made) == played(stored)
    sent = {request.ids_T.tobytes() for request in policy.asked}
    logged = {turn.context.ids.tobytes() for episode in stored for turn in episode.turns}
    assert sent == logged
    found = verify(run, CHAT)
    assert found.ok, found.breaches
    assert found.not_replayed == 0
    for episode in stored:
        total = sum(len(turn.completion.ids_T) for turn in episode.turns)
        assert sum(int(row.mask_T.sum()) for row in rows(episode)) == total == account(episode).trained
        assert len(rows(episode)) == (1 if prompting == "transcript" else len(episode.turns))


def test_results_do_not_depend_on_concurrency_or_batches() -> None:
    def run(concurrency: int) -> list[Any]:
        harness = Harness(Scripted(), CHAT)
        return played(harness.run_many(make_env, range(6), group_size=2, concurrency=concurrency, seed=3))

    one = run(1)
    assert one == run(5) == run(64)
    assert one != played(Harness(Scripted(), CHAT).run_many(make_env, range(6), group_size=2, seed=4))


def test_all_episodes_in_flight_share_one_batch() -> None:
    policy = Scripted()
    Harness(policy, CHAT).run_many(make_env, range(8), group_size=2, concurrency=10)
    assert policy.batches[0] == 10
    assert max(policy.batches) == 10


def test_a_group_starts_from_one_context_and_goes_on_apart() -> None:
    episodes = Harness(Scripted(), CHAT).run_many(make_env, [3], group_size=4)
    first = [episode.turns[0] for episode in episodes]
    assert all(turn.context is first[0].context for turn in first)
    assert len({episode.group_id for episode in episodes}) == 1
    assert [episode.head.replica for episode in episodes] == [0, 1, 2, 3]
    assert len({turn.completion.ids_T.tobytes() for turn in first}) == 4


def test_one_episode_can_be_run_alone() -> None:
    env = make_env(max_steps=50)
    episode = Harness("expert", CHAT).run(env, seed=2)
    assert episode.success
    assert episode.return_ == 1
    assert episode.turns[-1].terminated
    assert Harness("expert", CHAT).run(env, task=episode.head.task).success


def test_a_callable_is_a_policy() -> None:
    episode = Harness(lambda ids_T: CHAT.encode_turn("<action>look</action>"), CHAT).run(make_env())
    assert [turn.action_text for turn in episode.turns] == ["look"] * 5
    assert episode.turns[-1].truncation == "steps"


class Faulty(Scripted):
    """Fail for some requests, however they are batched."""

    def __init__(self, fault: Callable[[Request], Completion | None]) -> None:
        super().__init__()
        self._fault = fault

    def _turn(self, request: Request) -> Completion:
        return self._fault(request) or super()._turn(request)


def raises(request: Request) -> None:
    if request.seed % 3 == 0:
        raise RuntimeError("out of memory")


def says_nothing(request: Request) -> Completion | None:
    return Completion(as_ids([])) if request.seed % 3 == 0 else None


def says_what_is_no_id(request: Request) -> Completion | None:
    return Completion(as_ids([CHAT.vocab_size + 3])) if request.seed % 3 == 0 else None


@pytest.mark.parametrize("fault", [raises, says_nothing, says_what_is_no_id])
def test_a_policy_that_fails_costs_its_episode_and_not_the_batch(fault: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        episodes = Harness(Faulty(fault), CHAT, store=store).run_many(make_env, range(12), seed=1)
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert 0 < len(failed) < len(episodes) == 12
    assert {episode.failure.boundary for episode in failed if episode.failure} == {"policy"}
    well = Harness(Scripted(), CHAT).run_many(make_env, range(12), seed=1)
    for episode, other in zip(episodes, well, strict=True):
        if episode.status == "done":
            assert played([episode]) == played([other])
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches


def test_no_room_is_a_truncated_turn_and_no_failure(tmp_path: Path) -> None:
    def no_room(request: Request) -> Completion | None:
        return Completion(as_ids([]), finish_reason="truncated") if len(request.ids_T) > 320 else None

    with TraceStore(tmp_path, meta=META) as store:
        (episode,) = Harness(Faulty(no_room), CHAT, store=store).run_many(lambda: make_env(max_steps=40), [0])
    assert episode.status == "done"
    assert episode.turns[-1].truncation == "context_overflow"
    assert verify(tmp_path, CHAT).ok


class Mortal(ALFWorldEnv):
    """Die at the third step of some tasks, and refuse to start one."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if options == {"task": 5}:
            raise OSError("no disk")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if len(self._history) == 2 and self.engine.task_info()["task"] in self.engine.tasks()[:3]:
            raise ZeroDivisionError("the world broke")
        return super().step(action)


def test_a_world_that_fails_costs_its_episode_and_not_the_batch(tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness(Scripted(), CHAT, store=store)
        episodes = harness.run_many(lambda: Mortal(CHAT, split="valid_seen", max_steps=4), range(7))
    statuses = [episode.status for episode in episodes]
    assert statuses == ["failed"] * 3 + ["done"] * 2 + ["failed", "done"]
    assert [len(episode.turns) for episode in episodes] == [3, 3, 3, 4, 4, 0, 4]
    assert {episode.failure.boundary for episode in episodes if episode.failure} == {"world"}
    assert "no disk" in str(episodes[5].failure)
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches


class Doubled(gym.RewardWrapper[Any, Any]):
    """Give twice the reward."""

    def reward(self, reward: Any) -> Any:
        return 2 * reward


def test_wrappers_stay_around_the_environment() -> None:
    made: list[Any] = []

    def wrapped() -> Any:
        made.append(Doubled(make_env(max_steps=50)))
        return made[-1]

    episodes = Harness("expert", CHAT).run_many(wrapped, range(6), concurrency=2)
    assert [episode.return_ for episode in episodes] == [2.0] * 6
    assert len(made) <= 3


def test_mistakes_of_the_caller_are_raised() -> None:
    harness = Harness("expert", CHAT)
    with pytest.raises(UnknownName):
        harness.run_many(make_env, ["no such task"])
    with pytest.raises(ConfigError, match="at least 1"):
        harness.run_many(make_env, [0], group_size=0)
    cart = gym.make("CartPole-v1")
    with pytest.raises(ConfigError, match="token environment"):
        harness.run(cart)  # type: ignore[arg-type]
    cart.close()


def test_every_episode_is_announced_once() -> None:
    seen: list[Episode] = []
    episodes = Harness(Scripted(), CHAT, sampling=Sampling(temperature=0.5)).run_many(
        make_env, range(5), concurrency=2, on_episode=seen.append
    )
    assert sorted(episode.id for episode in seen) == sorted(episode.id for episode in episodes)
    assert {turn.completion.sampling for episode in seen for turn in episode.turns} == {Sampling(temperature=0.5)}
