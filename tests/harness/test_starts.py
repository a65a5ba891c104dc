"""Starts: clones of one reset where the world can be copied, resets of their own elsewhere, and all closed."""

import threading
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported, ConfigError
from agentgym_tok.harness import Budget, Harness
from agentgym_tok.harness.starts import Starts
from agentgym_tok.trace import Episode

CHAT = ChatFormat.builtin()


class Counted(ALFWorldEnv):
    """Count resets and closings; clones share the counts."""

    def __init__(self, *, clones: bool = True) -> None:
        super().__init__(CHAT, split="valid_seen")
        self.resets: list[tuple[int | None, Any]] = []
        self.closed: list[bool] = []
        self._clones = clones

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets.append((seed, options))
        if options == {"task": "broken"}:
            raise OSError("no disk")
        return super().reset(seed=seed, options=options)

    def clone(self) -> Any:
        return super().clone() if self._clones else self._refuse()

    def _refuse(self) -> NoReturn:
        raise CloneUnsupported("no copies")

    def close(self) -> None:
        self.closed.append(True)


def tokens_of(env: gym.Env[Any, Any]) -> TokenEnv:
    assert isinstance(env.unwrapped, TokenEnv)
    return env.unwrapped


class Maker:
    def __init__(self, *, clones: bool = True) -> None:
        self.made: list[Counted] = []
        self._clones = clones

    def __call__(self) -> Counted:
        self.made.append(Counted(clones=self._clones))
        return self.made[-1]


@pytest.fixture
def tasks() -> list[str]:
    return list(Counted().engine.tasks()[:2])


def test_a_group_is_cloned_from_one_reset(tasks: list[str]) -> None:
    make = Maker()
    with Starts(make, tokens_of) as starts:
        group = [starts.start(tasks[0], 3, again=replica > 0) for replica in range(3)]
        starts.start(tasks[1], 3, again=True)  # nothing to share yet
        starts.start(tasks[1], 4, again=False)
        for env, _ in group:
            starts.give_back(env)
    (base,) = make.made
    assert base.resets == [(3, {"task": tasks[0]}), (3, {"task": tasks[1]}), (4, {"task": tasks[1]})]
    assert len({id(env) for env, _ in group} | {id(base)}) == 4
    assert all(info["task"] == tasks[0] for _, info in group)
    assert base.closed == [True]


def test_a_reset_that_failed_is_shared_by_nobody(tasks: list[str]) -> None:
    make = Maker()
    with Starts(make, tokens_of) as starts:
        starts.start(tasks[0], 0, again=False)
        for again in (False, True):
            with pytest.raises(OSError, match="no disk"):
                starts.start("broken", 0, again=again)
        _, info = starts.start(tasks[0], 0, again=True)
    assert info["task"] == tasks[0]
    assert len(make.made) == 1
    assert len(make.made[0].resets) == 4


def test_a_world_without_copies_is_reset_for_each_member_and_used_again(tasks: list[str]) -> None:
    make = Maker(clones=False)
    with Starts(make, tokens_of) as starts:
        group = [starts.start(tasks[0], 0, again=replica > 0) for replica in range(3)]
        assert len({id(env) for env, _ in group}) == len(make.made) == 3
        first = group[0][0]
        assert np.array_equal(tokens_of(first).context.ids, tokens_of(group[2][0]).context.ids)
        starts.give_back(first)
        with pytest.raises(OSError, match="no disk"):
            starts.start("broken", 0, again=False)
        assert starts.start(tasks[1], 0, again=False)[0] is first
    assert [env.closed for env in make.made] == [[True]] * 3


def test_what_does_not_fit_is_closed() -> None:
    make = Maker()

    def refuse(env: gym.Env[Any, Any]) -> NoReturn:
        raise ConfigError("another chat format")

    with pytest.raises(ConfigError), Starts(make, refuse):
        pass
    assert make.made[0].closed == [True]


def test_one_environment_is_not_given_to_two_episodes(tasks: list[str]) -> None:
    env = Counted(clones=False)
    with pytest.raises(ConfigError, match="share one environment"):
        Harness("expert", CHAT).run_many(lambda: env, tasks[:2])
    assert env.closed == [True]


class Blocking(Counted):
    """Wait in each step until another episode has ended."""

    others: threading.Event

    def __init__(self) -> None:
        super().__init__(clones=False)
        self.engine.blocking = True  # type: ignore[attr-defined]

    def step(self, action: Any) -> Any:
        if self.engine.task_info()["task"] == self.engine.tasks()[0]:
            assert self.others.wait(30)
        return super().step(action)


def test_a_world_that_blocks_holds_up_no_other_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Event()
    monkeypatch.setattr(Blocking, "others", others, raising=False)
    ended: list[str] = []

    def note(episode: Episode) -> None:
        ended.append(episode.head.task)
        if len(ended) == 3:
            others.set()

    harness = Harness(lambda ids_T: CHAT.encode_turn("<action>look</action>"), CHAT, budget=Budget(turns=3))
    episodes = harness.run_many(Blocking, range(4), on_episode=note)
    assert ended[-1] == episodes[0].head.task
    assert {episode.status for episode in episodes} == {"done"}
