"""Environments of verifiers 0.3.1 and 0.4.0 as token environments: as recorded, or under `deep` as they are."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import real_python

from agentgym_tok import ChatFormat, Completion, Message, Request, ToolCall
from agentgym_tok.envs.adapters.verifiers import VerifiersEngine, VerifiersWorld
from agentgym_tok.errors import CloneUnsupported, ConfigError, ResetNeeded, UnknownName, WorldError
from agentgym_tok.harness import Harness
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import TraceStore, rows, verify

CHAT = ChatFormat.builtin()
Interpreter = Callable[[str, str], str]
Step = tuple[Any, float, bool, dict[str, Any]]


def call(name: str, **arguments: Any) -> Message:
    return Message("assistant", "I count.", tool_calls=(ToolCall(name, arguments),))


def play(env: VerifiersWorld, turns: list[str | Message], task: int = 1) -> list[Step]:
    """Play turns, and check of each that the next context holds its very ids, and the world's messages behind them."""
    ids_T, info = env.reset(seed=0, options={"task": task})
    seen: list[Step] = [(ids_T, 0.0, False, info)]
    for turn in turns:
        action_T, before = CHAT.encode_turn(turn), env.context
        ids_T, reward, terminated, truncated, info = env.step(action_T)
        assert not truncated
        assert info["edge"] in {"continuation", "fresh_prompt"}
        if info["edge"] == "continuation":
            bridged = CHAT.bridge(before.sampled(action_T), info["messages"])
            assert bridged.ids.tolist() == ids_T.tolist()  # type: ignore[union-attr]
        seen.append((ids_T, reward, terminated, info))
    return seen


def test_tools_of_a_classic_environment_answer_calls_and_its_rubric_scores(interpreter: Interpreter) -> None:
    python = interpreter("verifiers-classic", "verifiers-0.3.1-tools")
    env = VerifiersWorld(CHAT, environment="classic_world", python=python)
    first, called, ended = play(env, [call("add", a=1, b=1), "It is 2."])
    text = CHAT.decode(first[0])
    assert "Use add." in text
    assert '"name": "add"' in text
    assert "What is 1 + 1?" in text
    (answer,) = called[3]["messages"]
    assert (answer.role, answer.content, answer.tool_call_id) == ("tool", "2", "call00000")
    assert called[1:3] == (0.0, False)
    assert ended[1:3] == (1.0, True)
    assert ended[3]["success"] is True
    assert ended[3]["metrics"] == {"right": 1.0, "num_turns": 2.0, "total_tool_calls": 1.0, "add_calls": 1.0}
    assert ended[3]["stop"] == "no_tools_called"


def test_the_last_words_of_a_classic_environment_are_kept(interpreter: Interpreter) -> None:
    python = interpreter("verifiers-classic", "verifiers-0.3.1-talk")
    env = VerifiersWorld(CHAT, environment="classic_world", arguments={"kind": "talk"}, python=python)
    _, first, second = play(env, ["hello", "still 3"], task=2)
    assert first[3]["text"] == "Reply 1 to 'hello'."
    assert second[3]["text"] == "Reply 2 to 'still 3'."
    assert second[1:3] == (1.0, True)


def test_a_world_that_shows_another_past_begins_a_new_conversation(interpreter: Interpreter) -> None:
    python = interpreter("verifiers-classic", "verifiers-0.3.1-forgetful")
    env = VerifiersWorld(CHAT, environment="classic_world", arguments={"kind": "forgetful"}, python=python)
    _, second, _ = play(env, ["hello", "3"], task=2)
    assert second[3]["edge"] == "fresh_prompt"
    assert "hello" in CHAT.decode(second[0])  # quoted by the environment's own reply
    assert "What is" not in CHAT.decode(second[0])


def test_an_environment_that_fails_is_a_world_error_and_the_next_episode_goes_on(interpreter: Interpreter) -> None:
    python = interpreter("verifiers-classic", "verifiers-0.3.1-broken")
    env = VerifiersWorld(CHAT, environment="classic_world", arguments={"kind": "broken"}, python=python)
    env.reset(seed=0, options={"task": 0})
    with pytest.raises(WorldError, match="the room is on fire"):
        env.step(CHAT.encode_turn("hello"))
    with pytest.raises(ResetNeeded):
        env.step(CHAT.encode_turn("hello"))
    env.reset(seed=0, options={"task": 0})


def test_reasoning_gym_of_verifiers_itself_is_played_to_its_reward(interpreter: Interpreter) -> None:
    python = interpreter("verifiers-classic", "verifiers-0.3.1-reasoning")
    env = VerifiersWorld(CHAT, environment="reasoning_world", split="train", python=python)
    assert len(env.engine.tasks()) == 4
    _, info = env.reset(seed=0, options={"task": 0})
    sums = re.findall(r"-?\d+(?: [-+*/] -?\d+)+", info["text"])
    right = f"<answer>{eval(sums[-1])}</answer>"
    assert play(env, ["<answer>12345</answer>"], task=0)[-1][1:3] == (0.0, True)
    solved = play(env, [right], task=0)[-1]
    assert solved[1:3] == (1.0, True)
    assert solved[3]["metrics"] == {"check_answer_reward_func": 1.0, "format_reward_func": 1.0}


def test_tools_of_a_current_taskset_answer_calls_and_its_rewards_score(interpreter: Interpreter) -> None:
    python = interpreter("verifiers", "verifiers-0.4.0-sums")
    env = VerifiersWorld(CHAT, environment="sums-world", python=python)
    first, called, ended = play(env, [call("calc_add", a=1, b=1), "It is 2."])
    assert '"name": "calc_add"' in CHAT.decode(first[0])
    assert called[3]["messages"][0].content == "2"
    assert ended[1:3] == (1.0, True)
    assert ended[3]["metrics"] == {"right": 1.0}
    assert ended[3]["stop"] == "agent_completed"
    assert ended[3]["success"] is None


def test_a_current_environment_answers_by_itself_and_its_failure_is_a_world_error(interpreter: Interpreter) -> None:
    python = interpreter("verifiers", "verifiers-0.4.0-talk")
    env = VerifiersWorld(CHAT, environment="talk_world", python=python)
    assert len(env.engine.tasks()) == 1000
    _, first, second, third = play(env, ["hello", "two", "three"])
    assert [step[3]["text"] for step in (first, second)] == ["Reply 0 to 'hello'.", "Reply 1 to 'two'."]
    assert third[1:3] == (3.0, True)
    env.reset(seed=0, options={"task": 2})
    with pytest.raises(WorldError, match="the room is on fire"):
        env.step(CHAT.encode_turn("burn"))


# ---- with a stand-in for the package, in this interpreter


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent / "standin"))


class Dice(BasePolicy):
    """Draw ids that no tokenizer would write."""

    name = "dice"
    deterministic = True

    def answer(self, request: Request) -> Completion:
        draw = np.random.default_rng(request.seed)
        ids_T = as_ids([*draw.integers(0, 250, size=draw.integers(1, 9)), CHAT.stop_ids[0]])
        logprobs_T = np.full(len(ids_T), -2.5, np.float32)
        return Completion(ids_T, logprobs_T, logprobs="raw", engine="dice", sampling=request.sampling)


def test_many_episodes_share_a_process_and_every_sampled_id_is_trained(standin: None, tmp_path: Path) -> None:
    def make() -> VerifiersWorld:
        return VerifiersWorld(CHAT, environment="parrot_world", arguments={"turns": 3}, timeout_s=60)

    kept, more = make(), make()
    assert kept.engine._program is more.engine._program  # type: ignore[attr-defined]
    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        episodes = Harness(Dice(), CHAT, store=store).run_many(make, tasks=range(6), group_size=2, concurrency=12)
    assert [episode.status for episode in episodes] == ["done"] * 12
    assert {len(episode.turns) for episode in episodes} == {3}
    report = verify(tmp_path / "run", chat=CHAT)
    assert report.ok, report
    for episode in episodes:
        sampled = sum(len(turn.completion.ids_T) for turn in episode.turns)
        assert sum(int(row.mask_T.sum()) for row in rows(episode)) == sampled
        assert episode.return_ == pytest.approx(len(episode.turns))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("package", "environment", "arguments", "turns"),
    [("verifiers-classic", "classic_world", {"kind": "talk"}, 2), ("verifiers", "talk_world", {}, 3)],
)
def test_ids_that_no_tokenizer_writes_go_through_the_real_packages(
    package: str,
    environment: str,
    arguments: dict[str, Any],
    turns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent / "worlds"))

    def make() -> VerifiersWorld:
        return VerifiersWorld(CHAT, environment=environment, arguments=arguments, python=real_python(package))

    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        episodes = Harness(Dice(), CHAT, store=store).run_many(make, tasks=[0, 1, 2], group_size=8, concurrency=24)
    assert [(episode.status, len(episode.turns)) for episode in episodes] == [("done", turns)] * 24
    after_the_first = {edge.kind for episode in episodes for edge in episode.edges[1:]}
    assert after_the_first == {"continuation"}
    assert verify(tmp_path / "run", chat=CHAT).ok
    for episode in episodes:
        sampled = sum(len(turn.completion.ids_T) for turn in episode.turns)
        assert sum(int(row.mask_T.sum()) for row in rows(episode)) == sampled


def test_an_episode_of_many_that_fails_is_a_record_of_the_world(standin: None) -> None:
    def make() -> VerifiersWorld:
        return VerifiersWorld(CHAT, environment="parrot_world", arguments={"fails": 2}, timeout_s=60)

    episodes = Harness(Dice(), CHAT).run_many(make, tasks=range(4))
    assert [episode.status for episode in episodes] == ["done", "done", "failed", "done"]
    failure = episodes[2].failure
    assert failure is not None
    assert failure.boundary == "world"
    assert "the parrot died" in failure.message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loads": "badly"}, "the environment failed; .*no parrot"),
        ({"loads": "never"}, "no answer within"),
        ({"loads": "dying"}, "program ended; .*exit status 3; it printed: .*last words"),
        ({"groups": True}, "scores whole groups"),
    ],
)
def test_an_environment_that_does_not_load_says_why(standin: None, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(WorldError, match=f"(?s){words}"):
        VerifiersEngine("parrot_world", arguments=arguments, start_s=3 if "loads" in arguments else 30)


def test_a_process_that_dies_costs_the_episode_and_is_started_again(standin: None) -> None:
    engine = VerifiersEngine("parrot_world", timeout_s=30)
    engine.reset("parrot_world/eval/1")
    engine._program.end()
    with pytest.raises(WorldError, match="program ended"):
        engine.step("hello")
    assert "Task 1" in engine.reset().text
    assert engine.step("hello").text == "hello"


def test_pictures_are_refused_and_not_left_out(standin: None) -> None:
    engine = VerifiersEngine("parrot_world", arguments={"picture": True}, timeout_s=30)
    with pytest.raises(WorldError, match=r"only text can be shown to the policy, got parts of type \['image_url'\]"):
        engine.reset()


def test_what_cannot_be_is_said(standin: None) -> None:
    engine = VerifiersEngine("parrot_world", timeout_s=30)
    with pytest.raises(UnknownName, match="unknown task"):
        engine.reset("parrot_world/eval/99")
    with pytest.raises(UnknownName, match="unknown split"):
        VerifiersEngine("parrot_world", split="evil")
    with pytest.raises(CloneUnsupported):
        engine.clone()
    with pytest.raises(ResetNeeded):
        engine.step("hello")
    with pytest.raises(WorldError, match=r"cannot be started; .*next: name an interpreter"):
        VerifiersEngine("parrot_world", python="/no/such/python")
    with pytest.raises(ConfigError, match="no tasks"):
        VerifiersEngine("parrot_world", arguments={"rows": 0})
