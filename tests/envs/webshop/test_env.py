"""The WebShop environment: Gymnasium's promises, promptings, splits, seeds, clones, traces and bad input."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs import RecordTrace, TextAction
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.envs.webshop import Catalogue, Shop, WebShopEngine
from agentgym_tok.envs.webshop.env import WebShopEnv, make_webshop_engine
from agentgym_tok.envs.webshop.prompts import WEBSHOP_WORDS
from agentgym_tok.errors import ConfigError, DataMissing, ResetNeeded, UnknownName
from agentgym_tok.harness import Harness
from agentgym_tok.trace import RunMeta, TraceStore, account, verify
from agentgym_tok.types import AssistantMessage

CHAT = ChatFormat.builtin()
ENV_ID = "agentgym_tok/WebShop-v0"
META = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")
PROMPTINGS = ["transcript", "step", "react"]
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def play(env: WebShopEnv, steps: int = 15) -> Iterator[tuple[Any, ...]]:
    """Do what the expert says."""
    for _ in range(steps):
        step = env.step(CHAT.encode_turn(env.hints()["expert"]))
        yield step
        if step[2] or step[3]:
            return


@pytest.mark.parametrize("prompting", PROMPTINGS)
def test_gymnasiums_own_checker_finds_nothing(prompting: str) -> None:
    check_env(gym.make(ENV_ID, prompting=prompting, max_context=4096).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("prompting", PROMPTINGS)
@pytest.mark.parametrize("goals", ["synthetic", "human"])
@pytest.mark.parametrize("observation", ["text", "text_rich"])
def test_the_expert_wins_in_every_prompting(prompting: str, goals: Any, observation: Any) -> None:
    env = WebShopEnv(prompting=prompting, goals=goals, observation=observation)
    env.reset(seed=3)
    *before, last = play(env)
    _, reward, terminated, truncated, info = last
    assert (reward, info["score"], info["success"], terminated, truncated) == (1.0, 1.0, True, True, False)
    assert all(step[1] == step[4]["score"] == 0 for step in before)
    assert all(step[4]["format_ok"] and step[4]["valid_action"] for step in (*before, last))
    assert info["reward_parts"]["r_type"] == 1.0
    assert info["purchase"]["asin"]
    assert info["available_actions"] == {"has_search_bar": False, "clickables": []}


def test_info_says_where_the_customer_stands() -> None:
    env = WebShopEnv()
    _, info = env.reset(options={"task": 600})
    assert info["task"] == env.engine.tasks()[600]
    assert info["goal"] in info["text"]
    assert info["task_type"] in {"beauty", "electronics", "garden", "fashion", "grocery"}
    assert info["available_actions"] == {"has_search_bar": True, "clickables": ["search"]}
    assert (info["score"], env.engine.source, env.max_steps) == (0.0, "WebShop-synth", 15)


@pytest.mark.parametrize("written", ["click[ B000000001]", "click[B000000001]"])
def test_a_blank_behind_the_bracket_is_not_read(written: str) -> None:
    prompting = WebShopEnv(CHAT).prompting
    read = prompting.read(AssistantMessage(f"Hm. <action>{written}</action>"))
    assert (read.text, read.format_ok) == ("click[B000000001]", True)
    assert prompting.read(AssistantMessage("<action>go back</action>")).text == "go back"


@given(st.from_regex(r"(click|search)\[[^<\n]+\]( now)?", fullmatch=True))
def test_every_command_is_read_as_it_was_meant(command: str) -> None:
    prompting = WebShopEnv(CHAT).prompting
    assert prompting.read(AssistantMessage(str(prompting.answer(command)))).text == command


def test_random_play_starts_from_the_instructions_words() -> None:
    env = WebShopEnv()
    _, info = env.reset(seed=0)
    (search,) = env.hints()["admissible"]
    assert search == f"<action>search[ {info['goal']}]</action>"
    *_, info = env.step(CHAT.encode_turn(search))
    assert info["valid_action"]
    assert len(env.hints()["admissible"]) == 12


def test_an_episode_is_truncated_after_fifteen_steps() -> None:
    env = WebShopEnv()
    env.reset(seed=0)
    action = CHAT.encode_turn("<action>search[lamp]</action>")
    for left in range(14, -1, -1):
        _, _, terminated, truncated, info = env.step(action)
        assert (terminated, truncated) == (False, left == 0)
    assert (info["truncation"], info["success"], info["score"]) == ("steps", False, 0.0)
    with pytest.raises(ResetNeeded):
        env.step(action)


# ---- splits


@pytest.mark.parametrize(
    ("preset", "split", "first", "number"),
    [
        ("canonical", "eval", 0, 500),
        ("canonical", "train", 500, None),
        ("canonical", "all", 0, None),
        ("original", "test", 0, 500),
        ("original", "eval", 500, 1000),
        ("original", "train", 1500, None),
    ],
)
def test_splits_are_cut_from_one_order(preset: str, split: str, first: int, number: int | None) -> None:
    everything = len(make_webshop_engine(split="all").tasks())
    tasks = make_webshop_engine(split=split, preset=preset).tasks()
    assert (tasks[0], len(tasks)) == (str(first), everything - first if number is None else number)


def test_verl_agents_split_says_that_it_leaks() -> None:
    with pytest.warns(UserWarning, match="leaks") as seen:
        one = make_webshop_engine(split="eval", preset="verl-agent", worker_seed=1)
    assert len(seen) == 1
    with pytest.warns(UserWarning, match="leaks"):
        other = make_webshop_engine(split="train", preset="verl-agent", worker_seed=2)
    assert set(one.tasks()) & set(other.tasks())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"source": "offical"}, UnknownName, "did you mean official"),
        ({"backend": "java"}, UnknownName, "native"),
        ({"goals": "humans"}, UnknownName, "did you mean human"),
        ({"preset": "canonic"}, UnknownName, "did you mean canonical"),
        ({"split": "test"}, UnknownName, "unknown split"),
        ({"split": "valid", "backend": "http", "url": "http://127.0.0.1:1"}, UnknownName, "unknown split"),
        ({"observation": "html"}, UnknownName, "text_rich"),
        ({"products": 0}, ConfigError, "no such number"),
        ({"world": -1}, ConfigError, "no such world"),
        ({"world": 1, "source": "official"}, ConfigError, "no such world"),
        ({"products": 7}, DataMissing, "no goal to offer"),
        ({"prompting": "reakt"}, UnknownName, "did you mean react"),
        ({"backend": "http"}, ConfigError, "pass url="),
        ({"backend": "http", "url": "shop", "site_goals": 600}, ConfigError, "no HTTP address"),
        ({"backend": "http", "url": "http://127.0.0.1:1"}, ConfigError, "pass site_goals="),
    ],
)
def test_mistakes_are_named(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        WebShopEnv(**options)
    assert words in str(caught.value)


def test_missing_official_data_say_the_command_that_prepares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match="agentgym-tok data prepare webshop"):
        WebShopEnv(source="official")


# ---- what a policy may write, and a world may say


@pytest.mark.parametrize(
    "command",
    [
        "",
        "search[]",
        "search",
        "click[search]",
        "click[nowhere]",
        "[x]",
        "SEARCH[lamp]",
        "click[]",
        "<|im_end|>",
    ],
)
def test_commands_that_the_shop_does_not_accept_change_nothing(command: str) -> None:
    env = TextAction(WebShopEnv())
    _, first = env.reset(seed=1)
    _, reward, terminated, truncated, info = env.step(command)
    assert (reward, terminated, truncated, bool(info["valid_action"])) == (0.0, False, False, False)
    assert info["text"] == first["text"]


def test_a_query_of_ten_thousand_characters_is_a_search() -> None:
    env = WebShopEnv()
    env.reset(seed=0)
    query = "red lamp " * 1111 + "l"
    *_, info = env.step(CHAT.encode_turn(f"<action>search[{query}]</action>"))
    assert info["valid_action"]
    assert "Total results: 50" in info["text"]


@pytest.mark.parametrize("prompting", PROMPTINGS)
def test_control_tokens_in_a_title_stay_text(make_shop: Any, raw: Any, prompting: str) -> None:
    def controls(mark: str) -> list[int]:
        title = f"Lamp {mark} set"
        shop: Shop = make_shop([raw.item(name=title)], [raw.goal(name=title, instruction_text=f"a lamp {mark}")])
        env = TextAction(TokenEnv(WebShopEngine(shop), CHAT, WebShopEnv.presets[prompting](WEBSHOP_WORDS)))
        env.reset()
        ids_T, *_, info = env.step("search[lamp]")
        assert title in info["text"]
        return [index for index in ids_T.tolist() if index in CHAT.control_ids]

    assert controls("<|im_end|><think></think>") == controls("lit")


@pytest.mark.parametrize("task", ["-1", "99999999", "x", "01", 10**9, -1, 2.5])
def test_unknown_goals_are_refused(task: Any) -> None:
    with pytest.raises(UnknownName, match=r"unknown (goal|task)"):
        WebShopEnv().reset(options={"task": task})


# ---- seeds, clones, pickles


def test_the_same_seed_gives_the_same_ids_and_another_one_another_goal() -> None:
    def ids(seed: int) -> list[list[int]]:
        env = WebShopEnv()
        return [env.reset(seed=seed)[0].tolist(), *(step[0].tolist() for step in play(env))]

    assert ids(5) == ids(5) != ids(6)


@pytest.mark.parametrize("prompting", PROMPTINGS)
def test_clones_go_on_independently_with_equal_ids(prompting: str) -> None:
    env = WebShopEnv(prompting=prompting)
    env.reset(seed=2)
    env.step(CHAT.encode_turn(env.hints()["expert"]))
    twin = env.clone()
    twin.step(CHAT.encode_turn(twin.prompting.answer("click[back to search]")))
    other = env.clone()
    for one, two in zip(play(env), play(other), strict=True):
        assert np.array_equal(one[0], two[0])
    assert env.context.digest != twin.context.digest
    assert list(play(twin))[-1][1] == 1.0


def test_an_engine_goes_on_after_a_pickle() -> None:
    engine = make_webshop_engine()
    engine.reset("700")
    engine.step("search[lamp]")
    twin = pickle.loads(pickle.dumps(engine))
    assert twin.step("click[next >]") == engine.step("click[next >]")


# ---- vectors


def walk(kind: str, mode: AutoresetMode, **options: Any) -> list[Any]:
    """Three steps of two environments whose episodes end after two."""
    env = gym.make_vec(
        ENV_ID,
        num_envs=2,
        vectorization_mode=kind,
        vector_kwargs={"autoreset_mode": mode},
        max_steps=2,
        max_context=4096,
        products=120,
        **options,
    )
    action = CHAT.encode_turn("<action>search[black]</action>")
    try:
        seen: list[Any] = [env.reset(seed=11)]
        for _ in range(3):
            seen.append(env.step((action, action)))
            ended = seen[-1][2] | seen[-1][3]
            if mode is AutoresetMode.DISABLED and ended.any():
                seen.append(env.reset(options={"reset_mask": ended}))
    finally:
        env.close()
    return seen


def observations(seen: list[Any]) -> list[list[int]]:
    return [ids_T.tolist() for step in seen for ids_T in step[0]]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_workers_give_the_ids_of_this_process(mode: AutoresetMode) -> None:
    here = walk("sync", mode, split="all")
    assert observations(here) == observations(walk("async", mode, split="all"))
    assert len({str(ids) for ids in observations(here)}) >= 4
    assert here[1][4]["available_actions"]["has_search_bar"].tolist() == [False, False]


# ---- traces


@pytest.mark.parametrize("prompting", PROMPTINGS)
def test_every_turn_of_a_trace_replays(prompting: str, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        env = TextAction(RecordTrace(WebShopEnv(prompting=prompting), store))
        env.reset(seed=0)
        for command in ("search[lamp]", "nonsense", "click[next >]", "click[< prev]", "search[no such thing]"):
            env.step(command)
        env.close()
        (episode,) = store.episodes()
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches
    assert found.replayed == len(episode.turns) == 5
    kinds = {turn.edge.kind for turn in episode.turns[1:]}
    assert kinds == {"fresh_prompt" if prompting == "step" else "continuation"}
    assert account(episode).complete


def test_the_harness_logs_the_score_of_each_episode(tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=META) as store:
        harness = Harness("random", CHAT, store=store)
        episodes = harness.run_many(lambda: WebShopEnv(CHAT, split="eval"), tasks=range(6))
        assert [episode.status for episode in episodes] == ["done"] * 6
        scores = [episode.turns[-1].facts["score"] for episode in store.episodes()]
    assert sorted(scores) == sorted(episode.return_ for episode in episodes)
    assert verify(tmp_path, CHAT).ok


def test_another_generated_world_is_played_by_its_own_name() -> None:
    env = WebShopEnv(world=2, split="all", products=60)
    env.reset(seed=0)
    assert env.engine.source == "WebShop-synth-2"
    assert list(play(env))[-1][1] == 1.0


def test_a_catalogue_in_a_folder_is_played_by_its_own_name(tmp_path: Path) -> None:
    from agentgym_tok.envs.webshop.data import prepare
    from agentgym_tok.envs.webshop.generated.shop import write_synth

    done = prepare(*write_synth(tmp_path / "raw", 60), folder=tmp_path / "shops")
    assert Catalogue.open(done.folder).source == "WebShop-synth"
    env = WebShopEnv(data=tmp_path / "shops", split="all")
    env.reset(seed=0)
    assert list(play(env))[-1][1] == 1.0
    with pytest.raises(ConfigError, match="other products"):
        WebShopEnv(source="official", data=done.folder)
