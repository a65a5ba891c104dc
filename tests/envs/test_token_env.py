"""The token environment: what was sampled stands in the next observation, id for id."""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Refusal, Root, Span
from agentgym_tok.envs import GymText, TokenEnv, Transcript
from agentgym_tok.errors import (
    AgentGymTokError,
    ConfigError,
    DataCorrupt,
    FingerprintMismatch,
    InvalidAction,
    InvalidIds,
    ResetNeeded,
    UnknownName,
)
from agentgym_tok.tokens import Context

CHAT = ChatFormat.builtin()
Make = Callable[..., TokenEnv]
ids_lists = st.lists(st.integers(0, CHAT.vocab_size - 1), min_size=1, max_size=40)


def turn(text: str) -> Any:
    return CHAT.encode_turn(f"<action>{text}</action>")


# ---- identity


@settings(max_examples=60, deadline=None)
@given(
    words=st.text(max_size=30),
    steps=st.lists(st.tuples(ids_lists | st.text(max_size=40).map(turn), st.booleans()), min_size=1, max_size=6),
)
def test_the_observation_is_the_bridge_of_the_sampled_action(
    parrot: Make, words: str, steps: list[tuple[Any, bool]]
) -> None:
    env = parrot(words + "\u00e9<|im_end|>")
    env.reset(seed=1)
    for ids, stop in steps:
        before = env.context
        action = [*ids, CHAT.stop_ids[0]] if stop else list(ids)
        obs, _, terminated, truncated, info = env.step(action)
        bridged = CHAT.bridge(before.sampled(action), info["messages"])
        assert not isinstance(bridged, Refusal)
        assert np.array_equal(obs, bridged.ids)
        assert np.array_equal(obs[: len(before) + len(action)], [*before.ids, *action])
        assert info["context_digest"] == bridged.digest == env.context.digest
        assert np.array_equal(info["delta"].ids_T, obs[len(before) + len(action) :])
        if terminated or truncated:
            break


@settings(max_examples=30, deadline=None)
@given(prompt=ids_lists, action=ids_lists)
def test_after_adopting_a_random_context_the_environment_goes_on_from_it(
    parrot: Make, prompt: list[int], action: list[int]
) -> None:
    env = parrot()
    env.reset(seed=0)
    foreign = Context(env.context.root, Span(prompt, "prompt"))
    env.adopt(foreign)
    obs, _, _, _, info = env.step(action)
    bridged = CHAT.bridge(foreign.sampled(action), info["messages"])
    assert not isinstance(bridged, Refusal)
    assert np.array_equal(obs, bridged.ids)


def test_an_adopted_turn_keeps_its_log_probabilities_and_origin(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    action = turn("hello")
    logprobs = np.full(len(action), -0.5, np.float32)
    env.adopt(env.context.sampled(action, logprobs))
    env.step(action)
    span = env.context.spans[1]
    assert span.origin == "sampled"
    assert np.array_equal(span.logprobs_T, logprobs)


def test_an_adopted_turn_and_another_action_are_refused(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    env.adopt(env.context.sampled(turn("one")))
    with pytest.raises(InvalidAction, match="another turn"):
        env.step(turn("two"))


def test_a_context_of_another_format_is_not_adopted(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    with pytest.raises(FingerprintMismatch, match="never encoded again"):
        env.adopt(Context(Root("other", 10), Span([1], "prompt")))


def test_world_text_never_becomes_a_control_token(parrot: Make) -> None:
    spelled = "".join(CHAT.token_text(index) for index in sorted(CHAT.control_ids))
    env = parrot(spelled + "<|im_")
    plain = parrot("x")

    def controls(env: TokenEnv) -> list[int]:
        env.reset(seed=0)
        obs, *_ = env.step(turn("start|>"))
        return [index for index in obs.tolist() if index in CHAT.control_ids]

    assert controls(env) == controls(plain)
    assert spelled in CHAT.decode(env.context.ids)


def test_a_bridge_that_refuses_becomes_a_declared_rendering(parrot: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    env = parrot()
    env.reset(seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(ChatFormat, "bridge", lambda *_: Refusal("past_rewritten"))
        obs, _, _, _, info = env.step(turn("hello"))
    assert (info["edge"], info["refusal"]) == ("rerender", "past_rewritten")
    assert np.array_equal(obs, CHAT.open(env.conversation).ids)
    _, _, _, _, info = env.step(turn("again"))
    assert info["edge"] == "continuation"


# ---- protocol


def test_info_says_everything_at_reset_and_at_a_step(alfworld: Make) -> None:
    env = alfworld()
    _, info = env.reset(seed=3)
    assert info["action_text"] is info["format_ok"] is info["valid_action"] is info["edge"] is None
    assert info["task"] in env.engine.tasks()
    assert info["task_type"] in info["task"]
    assert info["messages"][0].role == "system"
    _, reward, terminated, truncated, info = env.step(turn("inventory"))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    assert info["action_text"] == "inventory"
    assert info["format_ok"]
    assert info["valid_action"]
    assert "inventory" in info["admissible_commands"]
    _, _, _, _, info = env.step(CHAT.encode_turn("fly to the moon"))
    assert not info["format_ok"]
    assert not info["valid_action"]
    assert info["text"] == "Nothing happens."


def test_the_expert_wins_with_reward_one(alfworld: Make) -> None:
    env = alfworld()
    env.reset(seed=0)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(CHAT.encode_turn(env.hints()["expert"]))
        rewards.append(reward)
        over = terminated or truncated
    assert info["success"]
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_step_prompting_opens_a_fresh_prompt_with_a_short_history(alfworld: Make) -> None:
    env = alfworld(prompting="step")
    env.reset(seed=0)
    seen = []
    for command in ("look", "inventory", "look"):
        seen.append(command)
        obs, _, _, _, info = env.step(CHAT.encode_turn(f"<think>hm</think><action>{command.upper()}</action>"))
        assert info["edge"] == "fresh_prompt"
        assert info["format_ok"]
        assert info["action_text"] == command
        assert np.array_equal(obs, CHAT.open(info["messages"]).ids)
    text = CHAT.decode(obs)
    assert "Action 2: 'inventory'" in text
    assert "Action 3: 'look'" in text
    assert "Action 1:" not in text
    assert "step 4" in text
    assert "'help'" not in text


def test_the_episode_is_truncated_at_max_steps(parrot: Make) -> None:
    env = parrot(max_steps=3)
    env.reset(seed=0)
    ends = [env.step(turn("on"))[2:5] for _ in range(3)]
    assert [(terminated, truncated, info["truncation"]) for terminated, truncated, info in ends] == [
        (False, False, None),
        (False, False, None),
        (False, True, "steps"),
    ]


def test_the_episode_is_truncated_where_the_context_would_be_too_long(parrot: Make) -> None:
    env = parrot("word " * 40, max_context=400)
    env.reset(seed=0)
    while True:
        before = env.context
        obs, _, terminated, truncated, info = env.step(turn("on"))
        assert len(obs) <= 400
        assert env.observation_space.contains(obs)
        if truncated:
            break
    assert (info["truncation"], info["edge"]) == ("context", None)
    assert not terminated
    assert np.array_equal(obs, before.ids)
    assert len(info["delta"]) == 0
    with pytest.raises(ResetNeeded):
        env.step(turn("on"))


def test_a_world_that_cuts_itself_short_truncates(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(turn("cut"))
    assert (terminated, truncated, info["truncation"]) == (False, True, "world")


def test_a_long_world_text_is_shortened_and_says_so(parrot: Make) -> None:
    env = parrot("many words " * 500, max_observation_tokens=64)
    _, info = env.reset(seed=0)
    content = info["messages"][-1].content
    assert info["shortened"] > 400
    assert f"{info['shortened']} tokens left out" in content
    assert len(CHAT.encode(content)) <= 64
    assert info["text"].startswith("many words many words")
    assert len(info["text"]) > len(content)


def test_limits_that_make_no_sense_are_refused(parrot: Make) -> None:
    for options in ({"max_steps": 0}, {"max_context": 0}, {"max_action": -1}, {"max_observation_tokens": 3}):
        with pytest.raises(ConfigError, match="limits"):
            parrot(**options)
    with pytest.raises(ConfigError, match="first prompt does not fit"):
        parrot(max_context=5).reset(seed=0)


# ---- bad input

BAD_ACTIONS = [
    pytest.param(np.array([1.0, 2.0]), InvalidIds, id="floats"),
    pytest.param(np.ones((2, 3), np.int32), InvalidIds, id="two dimensions"),
    pytest.param([[1, 2]], InvalidIds, id="nested list"),
    pytest.param([-1, 4], InvalidIds, id="negative"),
    pytest.param([CHAT.vocab_size], InvalidIds, id="beyond the vocabulary"),
    pytest.param([2**40], InvalidIds, id="beyond int32"),
    pytest.param([], InvalidAction, id="empty"),
    pytest.param(np.zeros(1_000_000, np.int32), InvalidAction, id="a million ids"),
    pytest.param(5, InvalidIds, id="a number"),
    pytest.param("go to desk 1", InvalidIds, id="text"),
    pytest.param(None, InvalidIds, id="none"),
    pytest.param([True, False], InvalidIds, id="booleans"),
    pytest.param(["a", "b"], InvalidIds, id="strings"),
]


@pytest.mark.parametrize(("action", "error"), BAD_ACTIONS)
def test_a_bad_action_is_our_error_and_changes_nothing(
    alfworld: Make, action: Any, error: type[AgentGymTokError]
) -> None:
    env, twin = alfworld(), alfworld()
    env.reset(seed=0)
    twin.reset(seed=0)
    before = env.context
    with pytest.raises(error) as caught:
        env.step(action)
    assert "got:" in str(caught.value)
    assert "expected:" in str(caught.value)
    assert env.context is before
    expert = CHAT.encode_turn(env.hints()["expert"])
    assert np.array_equal(env.step(expert)[0], twin.step(expert)[0])


def test_a_world_without_an_explorer_says_none(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    assert env.hints()["explorer"] is None


def test_text_is_told_of_the_wrapper_that_takes_it(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    with pytest.raises(InvalidIds, match="TextAction"):
        env.step("look")  # type: ignore[arg-type]
    with pytest.raises(InvalidIds):
        env.step([[1], [2, 3]])  # type: ignore[arg-type]


def test_step_before_reset_and_after_the_end_says_so(parrot: Make) -> None:
    env = parrot()
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(turn("x"))
    with pytest.raises(ResetNeeded):
        _ = env.context
    env.reset(seed=0)
    env.step(turn("win"))
    with pytest.raises(ResetNeeded, match="after the end"):
        env.step(turn("x"))
    with pytest.raises(ResetNeeded):
        env.adopt(env.context)
    env.reset(seed=0)
    env.step(turn("x"))


def test_unknown_names_suggest_the_nearest(alfworld: Make) -> None:
    env = alfworld()
    name = env.engine.tasks()[0]
    with pytest.raises(UnknownName, match="did you mean"):
        env.reset(options={"task": name[:-1]})
    with pytest.raises(UnknownName, match="did you mean task"):
        env.reset(options={"tsk": name})
    for index in (len(env.engine.tasks()), -1, True, np.True_, 1.0):
        with pytest.raises(UnknownName, match=f"0 to {len(env.engine.tasks()) - 1}; next: ids are such as '{name}'"):
            env.reset(options={"task": index})
    with pytest.raises(UnknownName, match="did you mean transcript"):
        alfworld(prompting="transcripts")
    with pytest.raises(UnknownName, match="did you mean valid_seen"):
        alfworld(split="valid_sen")
    with pytest.raises(UnknownName, match="did you mean official"):
        alfworld(source="offical")
    with pytest.raises(UnknownName, match="backend"):
        alfworld(backend="java")


def test_a_world_that_raises_does_not_hide_it(parrot: Make) -> None:
    env = parrot()
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="the parrot died"):
        env.step(turn("fail"))


@pytest.mark.parametrize(("holder", "name"), [(GymText, "step"), (Transcript, "follow"), (TokenEnv, "_info")])
def test_an_environment_runs_until_the_world_has_moved_and_a_step_is_not_whole(
    parrot: Make, monkeypatch: pytest.MonkeyPatch, holder: type, name: str
) -> None:
    env = parrot()
    assert not env.running
    env.reset(seed=0)
    assert env.running
    with pytest.raises(InvalidAction):
        env.step([])
    assert env.running

    def fails(*_: object, **__: object) -> None:
        raise DataCorrupt("broken")

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, fails)
        with pytest.raises(DataCorrupt):
            env.step(turn("x"))
    assert not env.running
    with pytest.raises(ResetNeeded, match="failure"):
        env.step(turn("x"))
    env.reset(seed=0)
    env.step(turn("win"))
    assert not env.running


def test_what_is_no_world_and_what_is_no_chat_format_are_named() -> None:
    class Half:
        def reset(self, task: str | None = None) -> None: ...
        def step(self, command: str) -> None: ...
        def tasks(self) -> None: ...
        def clone(self) -> None: ...
        def task_info(self) -> None: ...

    with pytest.raises(ConfigError, match=r"Half, which has no source, expert_command"):
        TokenEnv(Half(), CHAT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"gym\.make"):
        TokenEnv("agentgym_tok/ALFWorld-v0", CHAT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"ChatFormat\.builtin"):
        TokenEnv(Half(), "builtin")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["success", "text", "delta", "edge", "refusal", "shortened", "task"])
def test_facts_of_a_world_replace_nothing_in_info(parrot: Make, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    observe = GymText._observe
    monkeypatch.setattr(
        GymText, "_observe", lambda *args, **options: replace(observe(*args, **options), facts={name: 1})
    )
    env = parrot()
    with pytest.raises(ConfigError, match=f"got: {name};"):
        env.reset(seed=0)
    assert not env.running


# ---- tasks, seeds, clones


def test_tasks_are_chosen_by_id_index_or_seed(alfworld: Make) -> None:
    env = alfworld()
    names = env.engine.tasks()
    assert env.reset(options={"task": names[7]})[1]["task"] == names[7]
    assert env.reset(options={"task": 9})[1]["task"] == names[9]
    drawn = {env.reset(seed=seed)[1]["task"] for seed in range(40)}
    assert len(drawn) > 20
    assert [env.reset(seed=5)[1]["task"], env.reset()[1]["task"]] == [
        env.reset(seed=5)[1]["task"],
        env.reset()[1]["task"],
    ]


def test_a_clone_goes_on_alone(alfworld: Make) -> None:
    env = alfworld()
    env.reset(seed=0)
    env.step(CHAT.encode_turn(env.hints()["expert"]))
    twin, other = env.clone(), env.clone()
    assert twin.context is env.context
    moves = [CHAT.encode_turn(env.hints()["expert"]), turn("look"), turn("inventory")]
    for action in moves:
        assert np.array_equal(env.step(action)[0], twin.step(action)[0])
    obs, *_ = other.step(turn("look"))
    assert not np.array_equal(obs, env.context.ids[: len(obs)])
    assert env.reset()[1]["task"] == twin.reset()[1]["task"] == other.reset()[1]["task"]


def test_memory_stays_flat_over_two_hundred_episodes(alfworld: Make) -> None:
    env = alfworld()

    def play(episodes: int) -> None:
        for index in range(episodes):
            env.reset(options={"task": index % 20})
            for _ in range(5):
                env.step(turn("look"))

    play(40)  # caches of games and of the chat format fill
    gc.collect()
    tracemalloc.start()
    try:
        play(20)
        gc.collect()
        early = tracemalloc.get_traced_memory()[0]
        play(200)
        gc.collect()
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert late - early < 50_000


def test_render_shows_the_context(parrot: Make) -> None:
    env = parrot(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == CHAT.decode(env.context.ids)
    assert parrot().render() is None
    with pytest.raises(UnknownName, match="render mode"):
        parrot(render_mode="human")
