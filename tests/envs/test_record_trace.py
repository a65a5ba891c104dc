"""A plain Gymnasium loop becomes a trace that verifies."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat, Completion, Message, Sampling, Span
from agentgym_tok.envs import (
    GymText,
    PadTokens,
    RecordTrace,
    TextAction,
    TextObservation,
    TokenEnv,
    Transcript,
)
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.errors import (
    ChatError,
    ConfigError,
    DataCorrupt,
    DataMissing,
    InvalidAction,
    InvalidIds,
    InvalidLogprobs,
    ResetNeeded,
    TraceError,
    WorldError,
)
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


# ---- every turn that the world took is logged


def broken(error: Exception) -> Any:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


@pytest.mark.parametrize(
    ("holder", "name", "error", "boundary"),
    [
        (GymText, "step", DataCorrupt("a file"), "world"),
        (GymText, "step", KeyError("bug"), "world"),
        (Transcript, "follow", DataMissing("a file"), "world"),
        (ChatFormat, "bridge", ChatError("no word for this"), "harness"),
    ],
)
def test_whatever_fails_once_the_world_has_moved_ends_the_episode_as_a_record(
    parrot: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    holder: type,
    name: str,
    error: Exception,
    boundary: str,
) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.step(turn("a"))
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, broken(error))
            with pytest.raises(type(error)):
                env.step(turn("b"))
        with pytest.raises(ResetNeeded):
            env.step(turn("c"))
        (episode,) = store.episodes()
        env.reset(seed=0)
        env.step(turn("win"))
    assert episode.failure is not None
    assert (episode.status, episode.failure.boundary) == ("failed", boundary)
    assert [record.failure is None for record in episode.turns] == [True, False]
    assert np.array_equal(episode.turns[1].completion.ids_T, turn("b"))
    assert verify(tmp_path, CHAT).ok


def test_what_fails_before_the_world_has_moved_is_no_turn(
    parrot: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        before = env.unwrapped.context  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(ChatFormat, "parse", broken(ChatError("what is this")))
            with pytest.raises(ChatError):
                env.step(turn("a"))
        assert env.unwrapped.context is before  # type: ignore[attr-defined]
        env.step(turn("win"))
        (episode,) = store.episodes()
    assert (episode.status, len(episode.turns)) == ("done", 1)
    assert verify(tmp_path, CHAT).ok


class Inside(gym.Wrapper[Any, Any, Any, Any]):
    """Do something to what a step returned."""

    def __init__(self, env: Any, change: Callable[..., Any]) -> None:
        super().__init__(env)
        self.change = change

    def step(self, action: Any) -> Any:
        return self.change(*self.env.step(action))


@pytest.mark.parametrize(
    "change",
    [lambda *step: {}[step[1]], lambda ids_T, _, *rest: (ids_T, float("nan"), *rest), lambda *step: ("x", *step[1:])],
)
def test_a_wrapper_that_breaks_a_step_breaks_no_log(parrot: Make, tmp_path: Path, change: Callable[..., Any]) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(Inside(parrot(), change), store)
        env.reset(seed=0)
        with pytest.raises((KeyError, WorldError, InvalidIds)):
            env.step(turn("a"))
        with pytest.raises(ResetNeeded):
            env.step(turn("b"))
        (episode,) = store.episodes()
    assert (episode.status, len(episode.turns)) == ("failed", 1)
    assert verify(tmp_path, CHAT).ok


def test_a_turn_that_the_store_cannot_take_ends_the_episode(
    parrot: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(TraceStore, "append", broken(TraceError("the disk is full")))
            with pytest.raises(TraceError):
                env.step(turn("a"))
        with pytest.raises(ResetNeeded):
            env.step(turn("b"))
        (episode,) = store.episodes()
    assert episode.failure is not None
    assert (episode.status, episode.failure.boundary, episode.turns) == ("failed", "store", ())


def test_a_refused_text_leaves_no_ids_that_no_turn_answers_for(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = TextAction(RecordTrace(parrot(max_action=100), store))
        env.reset(seed=0)
        for command in ("word " * 200, "a", "word " * 200, "win"):
            with contextlib.suppress(InvalidAction):
                env.step(command)
        (episode,) = store.episodes()
    assert [record.action_text for record in episode.turns] == ["a", "win"]
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == 2


# ---- what is handed out, noted and adopted


def test_ids_that_a_wrapper_changed_on_their_way_out_are_found(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(Inside(parrot(), lambda ids_T, *rest: (ids_T[1:], *rest)), store)
        env.reset(seed=0)
        env.step(turn("a"))
        env.step(turn("win"))
    assert [(breach.law, breach.turn) for breach in verify(tmp_path).breaches] == [(2, 1)]


def test_noted_log_probabilities_alone_are_enough_to_train(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.note(np.full(len(turn("a")), -1.0))
        env.step(turn("a"))
        env.note(np.full(len(turn("b")), -1.0), Sampling(temperature=0.5), kind="processed")
        env.step(turn("b"))
        env.note(np.full(len(turn("win")), -1.0), None)
        env.step(turn("win"))
        (episode,) = store.episodes()
    said = [record.completion for record in episode.turns]
    assert [(one.logprobs, one.sampling and one.sampling.temperature) for one in said] == [
        ("raw", 1.0),
        ("processed", 0.5),
        ("raw", None),
    ]
    assert account(episode).masked == {"no_sampling": len(turn("win"))}


def test_a_noted_completion_is_logged_as_it_is(parrot: Make, tmp_path: Path) -> None:
    ids_T = turn("win")
    answer = Completion(
        ids_T,
        np.full(len(ids_T), -0.5),
        weight_versions=(("7", 0, len(ids_T)),),
        logprobs="raw",
        engine="mine 1",
        sampling=Sampling(),
    )
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.note(answer)
        with pytest.raises(InvalidAction, match="another turn"):
            env.step(turn("a"))
        env.note(answer)
        env.step(ids_T)
        (episode,) = store.episodes()
    (record,) = episode.turns
    assert (record.completion.engine, record.completion.weight_versions) == ("mine 1", answer.weight_versions)
    assert account(episode).trained == len(ids_T)
    assert verify(tmp_path, CHAT).ok


@pytest.mark.parametrize("between", ["reset", "refusal"])
def test_a_note_outlives_neither_a_reset_nor_a_refused_step(parrot: Make, tmp_path: Path, between: str) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.note(np.full(len(turn("win")), -1.0))
        if between == "reset":
            env.reset(seed=0)
        else:
            with pytest.raises(InvalidIds):
                env.step([CHAT.vocab_size])  # type: ignore[arg-type]
        env.step(turn("win"))
        *_, episode = store.episodes()
    assert episode.turns[0].completion.logprobs == "missing"


def test_log_probabilities_of_an_adopted_turn_are_kept(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        tokens, ids_T = env.unwrapped, turn("win")
        tokens.adopt(tokens.context.sampled(ids_T, np.full(len(ids_T), -0.5)))  # type: ignore[attr-defined]
        env.step(ids_T)
        (episode,) = store.episodes()
    assert episode.turns[0].completion.logprobs_T is not None
    assert account(episode).masked == {"no_sampling": len(ids_T)}


def test_an_adopted_rewrite_is_never_called_a_continuation(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = RecordTrace(parrot(), store)
        env.reset(seed=0)
        env.step(turn("a"))
        tokens: TokenEnv = env.unwrapped  # type: ignore[assignment]
        told = [Message("user", "Begin again.")]
        tokens.adopt(CHAT.open(told), told)
        env.step(turn("b"))
        tokens.adopt(tokens.context.extend(Span(CHAT.encode("note"), "observation")))
        env.step(turn("win"))
        (episode,) = store.episodes()
    edges = [record.edge for record in episode.turns]
    assert [(edge.kind, edge.source, edge.declared) for edge in edges] == [
        ("fresh_prompt", None, True),
        ("unknown", 0, False),
        ("continuation", 1, False),
    ]
    assert edges[1].place == 1
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert (found.replayed, found.not_replayed) == (2, 1)  # nobody said what made the note


def test_only_token_spaces_are_recorded(parrot: Make, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        for wrapper in (TextAction, PadTokens):
            with pytest.raises(ConfigError, match="other way round"):
                RecordTrace(wrapper(parrot()), store)  # type: ignore[arg-type]


def test_a_turn_that_ends_in_a_stop_string_has_stopped(tmp_path: Path) -> None:
    ids_T = CHAT.encode("<action>look</action>")
    with TraceStore(tmp_path, chat=CHAT) as store:
        env = RecordTrace(ALFWorldEnv(CHAT, split="valid_seen", max_steps=2), store)
        env.reset(seed=0)
        for stop in (("</action>",), ("nothing",)):
            env.note(np.zeros(len(ids_T)), Sampling(stop=stop))
            env.step(ids_T)
        (episode,) = store.episodes()
    assert [turn.completion.finish_reason for turn in episode.turns] == ["stop", "length"]
