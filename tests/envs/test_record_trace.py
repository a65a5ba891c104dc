"""A plain Gymnasium loop becomes a trace that verifies."""

from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs import GymText, RecordTrace, TextAction, TextObservation, TokenEnv
from agentgym_tok.errors import ConfigError, InvalidIds, InvalidLogprobs, ResetNeeded, WorldError
from agentgym_tok.trace import RunMeta, TraceStore, account, rows, verify

CHAT = ChatFormat.builtin()
META = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")
Make = Callable[..., TokenEnv]


def turn(text: str) -> np.ndarray:
    return CHAT.encode_turn(f"<action>{text}</action>")


def test_each_step_is_a_turn_with_the_very_ids(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        obs, _ = env.reset(seed=0)
        sent, said = [obs], []
        for command in ("a", "b<|im_end|>", "win"):
            action = turn(command)
            env.note(np.full(len(action), -1.0), Sampling())
            obs, *_ = env.step(action)
            sent.append(obs)
            said.append(action)
        (episode,) = store.episodes()
    assert (episode.status, episode.success, episode.return_) == ("done", True, 1.0)
    for record, ids_T, action in zip(episode.turns, sent, said, strict=False):
        assert np.array_equal(record.context.ids, ids_T)
        assert np.array_equal(record.completion.ids_T, action)
    assert [record.edge.kind for record in episode.turns] == ["fresh_prompt", "continuation", "continuation"]
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == 3
    assert account(episode).trained == sum(map(len, said))
    (row,) = rows(episode)
    assert np.array_equal(row.ids_T[row.mask_T], np.concatenate(said))


def test_a_reset_that_nobody_seeded_is_recorded(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset()
        env.step(turn("win"))
        (episode,) = store.episodes()
    assert 0 <= episode.head.seed < 2**63
    assert verify(tmp_path, CHAT).ok


def test_a_world_that_says_itself_that_it_failed_ends_the_episode(
    parrot: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> TextObservation:
        raise WorldError("the world is gone")

    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.step(turn("a"))
        monkeypatch.setattr(GymText, "step", fails)
        with pytest.raises(WorldError, match="gone"):
            env.step(turn("b"))
        (episode,) = store.episodes()
    assert episode.failure is not None
    assert (episode.status, episode.failure.boundary, len(episode.turns)) == ("failed", "world", 2)
    assert verify(tmp_path, CHAT).ok


def test_without_log_probabilities_a_turn_is_kept_and_not_trained(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.step(turn("win"))
        (episode,) = store.episodes()
    accounting = account(episode)
    assert (accounting.sampled, accounting.trained) == (len(turn("win")), 0)
    assert accounting.complete
    assert list(accounting.masked) == ["no_logprobs"]


def test_text_actions_are_demonstrations(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = TextAction(RecordTrace(parrot(), store))
        env.reset(seed=0)
        env.step("win")
        (episode,) = store.episodes()
    assert episode.turns[0].completion.origin == "demonstration"
    assert verify(tmp_path, CHAT).ok


def test_step_prompting_is_recorded_as_fresh_prompts_that_replay(alfworld: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = TextAction(RecordTrace(alfworld(prompting="step"), store))
        env.reset(seed=0)
        for _ in range(3):
            env.step("look")
        env.close()
        (episode,) = store.episodes()
    assert [record.edge.kind for record in episode.turns] == ["fresh_prompt"] * 3
    assert episode.status == "abandoned"
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == 3


def test_a_refused_action_is_no_turn_and_the_episode_goes_on(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        with pytest.raises(ResetNeeded):
            env.step(turn("x"))
        env.reset(seed=0)
        with pytest.raises(InvalidIds):
            env.step(np.array([-3]))
        env.note([0.5], None)
        with pytest.raises(InvalidLogprobs):
            env.step(turn("x"))
        env.note(None)
        env.step(turn("win"))
        (episode,) = store.episodes()
    assert len(episode.turns) == 1
    assert verify(tmp_path, CHAT).ok


def test_a_world_that_dies_is_a_failed_episode(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        with pytest.raises(RuntimeError, match="the parrot died"):
            env.step(turn("fail"))
        env.reset(seed=0)
        env.step(turn("win"))
        dead, alive = store.episodes()
    assert (dead.status, alive.status) == ("failed", "done")
    assert dead.failure is not None
    assert dead.failure.boundary == "world"
    assert verify(tmp_path, CHAT).ok


def test_the_ghost_step_of_autoreset_is_no_turn(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = gym.vector.SyncVectorEnv(
            [lambda: RecordTrace(parrot(), store)], autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP
        )
        env.reset(seed=0)
        for command in ("a", "win", "ghost", "b"):
            env.step((turn(command),))
        env.close()
        episodes = list(store.episodes())
    assert [[record.action_text for record in episode.turns] for episode in episodes] == [["a", "win"], ["b"]]
    assert verify(tmp_path, CHAT).ok


def test_only_token_environments_are_recorded(tmp_path: Path) -> None:
    cart = gym.make("CartPole-v1")
    with TraceStore(tmp_path, meta=META) as store, pytest.raises(ConfigError):
        RecordTrace(cart, store)  # type: ignore[arg-type]
    cart.close()
