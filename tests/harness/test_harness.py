"""The harness: every turn logged as it was sent, failures as records, the same results in any order."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.errors import ChatError, ConfigError, FingerprintMismatch, InvalidAction, TraceError, UnknownName
from agentgym_tok.harness import Harness
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, RunMeta, TraceStore, Turn, account, rows, verify

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
        if options == {"task": self.engine.tasks()[5]}:
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


# ---- worlds that do not start


class Closed(ALFWorldEnv):
    """Start no task."""

    error: Exception = OSError("no disk")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise self.error


def closed() -> Closed:
    return Closed(CHAT, split="valid_seen")


def test_worlds_that_do_not_start_are_records_with_all_that_is_known(tmp_path: Path) -> None:
    engine = closed().engine
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness(Scripted(), CHAT, store=store)
        made = harness.run_many(closed, [4, engine.tasks()[7]], group_size=2, seed=3)
        stored = list(store.episodes())
    well = Harness(Scripted(), CHAT).run_many(make_env, [4, 7], group_size=2, seed=3)
    for episodes in (made, stored):
        assert [(one.status, len(one.turns), one.success) for one in episodes] == [("failed", 0, None)] * 4
        assert {(one.failure.boundary, one.failure.kind) for one in episodes if one.failure} == {("world", "OSError")}
        for one, other in zip(episodes, well, strict=True):
            assert one.head == replace(other.head, id=one.id, created=one.head.created)
    assert verify(tmp_path, CHAT).ok


@pytest.mark.parametrize("task", [None, 5])
def test_one_episode_that_does_not_start_is_a_record_too(tmp_path: Path, task: int | None) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness(Scripted(), CHAT, store=store)
        episode = harness.run(closed(), seed=2, task=task)
        (stored,) = store.episodes()
    well = Harness(Scripted(), CHAT).run(make_env(), seed=2, task=task)
    assert (episode.head.task, episode.head.source) == (well.head.task, "ALFWorld-synth")
    assert (stored.head, stored.status, stored.failure) == (episode.head, "failed", episode.failure)


def test_words_that_the_template_refuses_are_the_harness_s_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closed, "error", ChatError("no"))
    (episode,) = Harness(Scripted(), CHAT).run_many(closed, [0])
    assert episode.failure is not None
    assert (episode.failure.boundary, episode.failure.kind) == ("harness", "ChatError")


def test_a_store_that_fails_at_a_reset_is_no_failure_of_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closed, "error", TraceError("the disk is full"))
    with pytest.raises(TraceError, match="full"):
        Harness(Scripted(), CHAT).run(closed())


def test_a_wrapper_that_chooses_tasks_of_its_own_is_believed() -> None:
    class Curriculum(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return self.env.reset(seed=seed, options={"task": 3})

    env = make_env()
    assert Harness(Scripted(), CHAT).run(Curriculum(env), task=0).head.task == env.engine.tasks()[3]


def test_without_a_task_the_seed_chooses_as_the_environment_does() -> None:
    for seed in range(5):
        _, info = make_env().reset(seed=seed)
        assert Harness(Scripted(), CHAT).run(make_env(), seed=seed).head.task == info["task"]


# ---- whose fault it was


def failing(step: Callable[[ALFWorldEnv, Any], Any]) -> Callable[[], ALFWorldEnv]:
    class Failing(ALFWorldEnv):
        def step(self, action: Any) -> Any:
            return step(self, action)

    return lambda: Failing(CHAT, split="valid_seen", max_steps=5)


def refuses(env: ALFWorldEnv, action: Any) -> Any:
    raise InvalidAction("not this turn")


def refuses_afterwards(env: ALFWorldEnv, action: Any) -> Any:
    def step(command: str) -> Any:
        raise InvalidAction("the world calls it so")

    env.engine.step = step  # type: ignore[method-assign]
    return ALFWorldEnv.step(env, action)


def cannot_render(env: ALFWorldEnv, action: Any) -> Any:
    raise ChatError("no such message")


def rewards_nothing(env: ALFWorldEnv, action: Any) -> Any:
    ids_T, _, *rest = ALFWorldEnv.step(env, action)
    return ids_T, float("nan"), *rest


@pytest.mark.parametrize(
    ("step", "boundary"),
    [
        (refuses, "policy"),
        (refuses_afterwards, "world"),
        (cannot_render, "harness"),
        (rewards_nothing, "world"),
    ],
)
def test_a_failed_step_is_attributed_to_one_boundary(step: Any, boundary: str, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        (episode,) = Harness(Scripted(), CHAT, store=store).run_many(failing(step), [0])
    assert episode.failure is not None
    assert (episode.status, episode.failure.boundary, len(episode.turns)) == ("failed", boundary, 1)
    assert len(episode.turns[0].completion.ids_T)
    assert verify(tmp_path, CHAT).ok


def test_an_expert_that_fails_costs_its_episode_and_not_the_batch(tmp_path: Path) -> None:
    class Puzzled(ALFWorldEnv):
        def hints(self) -> dict[str, Any]:
            if self.engine.task_info()["task"] == self.engine.tasks()[1]:
                raise ZeroDivisionError("no way")
            return super().hints()

    with TraceStore(tmp_path, meta=META) as store:
        made = Harness("expert", CHAT, store=store).run_many(lambda: Puzzled(CHAT, split="valid_seen"), range(3))
    assert [episode.status for episode in made] == ["done", "failed", "done"]
    assert made[1].failure is not None
    assert (made[1].failure.boundary, made[1].failure.kind) == ("world", "ZeroDivisionError")
    assert verify(tmp_path, CHAT).ok


# ---- what a policy returns


class Odd(Scripted):
    """Return something else than the turns."""

    def __init__(self, change: Callable[[list[Completion]], Any]) -> None:
        super().__init__()
        self._change = change

    def generate(self, requests: Sequence[Request]) -> Any:
        return self._change(super().generate(requests))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda turns: turns[1:], "got: 3 answers; expected: a list of 4 answers"),
        (lambda turns: [*turns, turns[0]], "got: 5 answers"),
        (lambda turns: None, "got: NoneType"),
        (iter, "got: list_iterator"),
        (lambda turns: [None] * len(turns), "got: NoneType; expected: a Completion"),
        (lambda turns: [turn.ids_T for turn in turns], "got: ndarray"),
        (lambda turns: [Completion(turn.ids_T, origin="observation") for turn in turns], "got: origin 'observation'"),
    ],
)
def test_answers_that_are_no_turns_are_a_failure_of_the_policy_that_says_what_came(change: Any, got: str) -> None:
    policy = Odd(change)
    episodes = Harness(policy, CHAT).run_many(make_env, range(4))
    for episode in episodes:
        assert episode.failure is not None
        assert (episode.failure.boundary, episode.failure.kind) == ("policy", "PolicyError")
        assert got in episode.failure.message
        assert "where: scripted" in episode.failure.message
    assert policy.batches == [4]  # what was drawn once is not drawn again


def test_an_exception_in_the_place_of_a_turn_costs_that_turn_alone() -> None:
    policy = Odd(lambda turns: [ValueError("no"), *turns[1:]] if len(turns) == 4 else turns)
    episodes = Harness(policy, CHAT).run_many(make_env, range(4))
    assert [episode.status for episode in episodes] == ["failed", "done", "done", "done"]
    assert str(episodes[0].failure) == "Failure(boundary='policy', kind='ValueError', message='no')"
    assert policy.batches == [4, 3, 3, 3, 3]


def test_a_callable_that_fails_once_is_not_asked_again() -> None:
    asked: list[int] = []

    def act(ids_T: Any, request: Request) -> Any:
        asked.append(request.seed)
        return 1 // 0 if request.seed % 3 == 0 else CHAT.encode_turn("<action>look</action>")

    episodes = Harness(act, CHAT).run_many(make_env, range(12), seed=1)
    assert {episode.status for episode in episodes} == {"done", "failed"}
    assert len(asked) == len(set(asked)) == sum(len(episode.turns) for episode in episodes)


def test_a_policy_of_another_chat_format_is_refused() -> None:
    policy = Scripted()
    policy.fingerprint = "0" * 64  # type: ignore[attr-defined]
    with pytest.raises(FingerprintMismatch, match=r"another chat format; where: Harness, policy scripted; got: 0000"):
        Harness(policy, CHAT)
    policy.fingerprint = CHAT.fingerprint  # type: ignore[attr-defined]
    assert Harness(policy, CHAT).policy is policy


# ---- runs that end early


def interrupts(episode: Episode) -> None:
    raise KeyboardInterrupt


def refuse_turn(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch, place: int, error: BaseException, *, stored: bool
) -> None:
    """Raise at one turn, before or after it is stored."""
    append, turns = store.append, iter(range(10**6))

    def refuse(turn: Turn) -> None:
        here = next(turns) == place
        if stored or not here:
            append(turn)
        if here:
            raise error

    monkeypatch.setattr(store, "append", refuse)


@pytest.mark.parametrize("error", [TraceError("the disk is full"), KeyboardInterrupt(), FingerprintMismatch("no")])
@pytest.mark.parametrize("place", [0, 5, 9])
@pytest.mark.parametrize("stored", [False, True])
def test_a_run_that_ends_early_keeps_every_turn_that_was_drawn(
    error: BaseException, place: int, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Scripted()
    with TraceStore(tmp_path, meta=META) as store:
        refuse_turn(store, monkeypatch, place, error, stored=stored)
        with pytest.raises(type(error)):
            Harness(policy, CHAT, store=store).run_many(make_env, range(4), seed=1)
        episodes = list(store.episodes())
    assert [episode.status for episode in episodes] == ["abandoned"] * 4
    turns = [turn for episode in episodes for turn in episode.turns]
    assert {turn.seed for turn in turns} == {request.seed for request in policy.asked}
    assert len(turns) == len(policy.asked)
    # The others may have gone on with what was drawn for them; nothing is asked for any more.
    assert place + stored <= sum(turn.used for turn in turns) <= place + 4
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert account(episodes).complete


def test_an_interrupt_in_a_world_or_a_callback_leaves_no_episode_running(tmp_path: Path) -> None:
    def interrupted(env: ALFWorldEnv, action: Any) -> Any:
        if len(env._history) == 2:
            raise KeyboardInterrupt
        return ALFWorldEnv.step(env, action)

    policy = Scripted()
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness(policy, CHAT, store=store)
        with pytest.raises(KeyboardInterrupt):
            harness.run_many(failing(interrupted), range(3))
        with pytest.raises(KeyboardInterrupt):
            harness.run(failing(interrupted)())
        with pytest.raises(KeyboardInterrupt):
            harness.run_many(make_env, range(3), seed=5, on_episode=interrupts)
        stored = list(store.episodes())
    assert {episode.status for episode in stored} == {"done", "abandoned"}
    assert sum(len(episode.turns) for episode in stored) == len(policy.asked)
    assert verify(tmp_path, CHAT).ok


def test_an_interrupt_at_the_end_of_an_episode_does_not_log_its_last_turn_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        finish, ends = store.finish, iter(range(10))

        def interrupted(*given: Any) -> None:
            if next(ends) == 0:
                raise KeyboardInterrupt
            finish(*given)

        monkeypatch.setattr(store, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Harness(Scripted(), CHAT, store=store).run(make_env(max_steps=3))
        (episode,) = store.episodes()
    assert (episode.status, len(episode.turns)) == ("abandoned", 3)


def test_an_interrupt_while_requests_are_asked_one_by_one_keeps_the_turns_before_it(tmp_path: Path) -> None:
    class Slow(Scripted):
        def generate(self, requests: Sequence[Request]) -> list[Completion]:
            if len(requests) > 1:
                raise RuntimeError("one at a time")
            if len(self.batches) == 2:
                raise KeyboardInterrupt
            return super().generate(requests)

    policy = Slow()
    with TraceStore(tmp_path, meta=META) as store:
        with pytest.raises(KeyboardInterrupt):
            Harness(policy, CHAT, store=store).run_many(make_env, range(4))
        stored = list(store.episodes())
    assert [(episode.status, len(episode.turns)) for episode in stored] == [
        *[("abandoned", 1)] * 2,
        *[("abandoned", 0)] * 2,
    ]
    assert verify(tmp_path, CHAT).ok


# ---- groups and seeds


def test_a_task_that_comes_again_is_another_group_of_other_samples() -> None:
    harness = Harness(Scripted(), CHAT)
    first = harness.run_many(make_env, [0], group_size=2, seed=3)
    task = first[0].head.task
    twice = harness.run_many(make_env, [0, 1, task], group_size=2, seed=3)
    assert played(twice[:2]) == played(first)
    assert [one.group_id for one in twice[:2]] == [one.group_id for one in first]
    assert len({one.group_id for one in twice}) == 3
    assert twice[4].head.task == task
    assert twice[4].turns[0].context.digest == first[0].turns[0].context.digest
    assert len({turn.seed for one in twice for turn in one.turns}) == sum(len(one.turns) for one in twice)
    alone = harness.run(make_env(), seed=twice[4].head.seed, task=task)
    assert played([alone]) == played(twice[4:5])


def test_a_store_takes_a_task_with_a_seed_once(tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness(Scripted(), CHAT, store=store)
        harness.run_many(make_env, [0, 1])
        with pytest.raises(ConfigError, match=r"this task with this seed already; .* seed 0, .*; next: pass another"):
            Harness(Scripted(), CHAT, store=store).run_many(make_env, [2, 1])
        assert len(store) == 2
        harness.run_many(make_env, [2])
        harness.run_many(make_env, [0, 1], seed=1)
        assert len({head.group_id for head, _ in store.heads()}) == len(store) == 5


# ---- environments


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
