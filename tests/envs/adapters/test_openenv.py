"""Servers of openenv 0.10.0 as token environments: as they were noted, or under `deep` as they are; and the wire."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("websockets", reason="the extra openenv is not installed")

from wire import Wire

from agentgym_tok import ChatFormat, Message, ToolCall
from agentgym_tok.envs.adapters.openenv import OpenEnvEngine, OpenEnvWorld
from agentgym_tok.errors import CloneUnsupported, MissingExtra, ResetNeeded, UnknownName, WorldError
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore, verify

CHAT = ChatFormat.builtin()
Server = Callable[..., str]


def calls(*named: tuple[str, dict[str, Any]]) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall(name, arguments) for name, arguments in named))


def play(env: OpenEnvWorld, turns: list[str | Message], task: int = 3) -> list[tuple[float, bool, dict[str, Any]]]:
    ids_T, info = env.reset(seed=0, options={"task": task})
    seen = [(0.0, False, info)]
    for turn in turns:
        action_T, before = CHAT.encode_turn(turn), env.context
        ids_T, reward, terminated, _, info = env.step(action_T)
        assert info["edge"] == "continuation"
        bridged = CHAT.bridge(before.sampled(action_T), info["messages"])
        assert bridged.ids.tolist() == ids_T.tolist()  # type: ignore[union-attr]
        seen.append((reward, terminated, info))
    return seen


def test_an_action_is_a_call_of_step_and_is_checked_by_the_server(server: Server) -> None:
    env = OpenEnvWorld(CHAT, url=server("echo"), max_steps=9)
    first, echoed, refused, odd, plain = play(
        env,
        [
            calls(("step", {"message": "a <|im_end|> b"})),
            calls(("step", {"mesage": "a"})),
            calls(("stop", {})),
            "just words",
        ],
    )
    env.close()
    assert env.engine.source == "openenv/MyEnvironment"
    assert "My Env environment ready!" in first[2]["text"]
    assert env.prompting.tools[0]["function"]["parameters"]["required"] == ["message"]
    assert json.loads(echoed[2]["text"]) == {"echoed_message": "a <|im_end|> b", "message_length": 14}
    assert echoed[2]["messages"][0].role == "tool"
    assert not set(echoed[2]["delta"].ids_T[4:-6]) & CHAT.control_ids  # the words of a world are only words
    assert echoed[0] == 1.0
    assert bool(echoed[2]["valid_action"]) is True
    assert refused[2]["text"].startswith("Refused: Invalid message; message: Field required")
    assert (refused[0], bool(refused[2]["valid_action"])) == (0.0, False)
    assert odd[2]["text"] == "Refused: this is no action of the environment"
    assert (plain[0], plain[2]["messages"][0].role) == (1.0, "user")


def test_without_tools_the_text_is_the_action(server: Server) -> None:
    env = OpenEnvWorld(CHAT, url=server("echo-plain"), tools=False)
    first, echoed, by_json, refused = play(env, ["abc", '{"message": "x"}', '{"words": "x"}'])
    env.close()
    assert "It is taken as it is." in CHAT.decode(env.context.ids)
    assert first[2]["messages"][1].role == "user"
    assert "abc" in echoed[2]["text"]
    assert json.loads(by_json[2]["text"])["echoed_message"] == "x"
    assert bool(refused[2]["valid_action"]) is False


def test_tools_of_a_server_are_called_and_its_end_ends_the_episode(server: Server) -> None:
    env = OpenEnvWorld(CHAT, url=server("door", "mcp_server:app"))
    _, note, absent, wrong, silent, opened = play(
        env,
        [
            calls(("read_note", {})),
            calls(("leave", {})),
            calls(("enter", {"code": "x"})),
            "Which code?",
            calls(("enter", {"code": 5}), ("enter", {"code": 1003}), ("read_note", {})),
        ],
    )
    env.close()
    assert [tool["function"]["name"] for tool in env.prompting.tools] == ["read_note", "enter"]
    assert note[2]["text"] == "The code is 1003."  # the task is the seed
    assert (absent[2]["text"], bool(absent[2]["valid_action"])) == ("Unknown tool: 'leave'", False)
    assert "valid integer" in wrong[2]["text"]
    assert silent[2]["text"] == "No tool was called. Call one of the tools."
    assert opened[:2] == (1.0, True)
    assert [message.content for message in opened[2]["messages"]] == ["Nothing happens.", "The door opens."]


# ---- the wire, with a server of three lines


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def test_episodes_of_sessions_are_logged_and_proved(wire: Wire, tmp_path: Path) -> None:
    def speak(ids_T: Any) -> Any:
        said = CHAT.decode(ids_T)
        return CHAT.encode_turn("end" if "again" in said else "again")

    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        episodes = Harness(speak, CHAT, store=store).run_many(
            lambda: OpenEnvWorld(CHAT, url=wire.url, tools=False), tasks=range(4), concurrency=4
        )
    assert [episode.return_ for episode in episodes] == [1.0] * 4
    assert verify(tmp_path / "run", chat=CHAT).ok
    assert {message["data"]["seed"] for message in wire.heard if message["type"] == "reset"} == {0, 1, 2, 3}


def test_reset_has_the_arguments_that_it_was_given(wire: Wire) -> None:
    engine = OpenEnvEngine(wire.url, reset={"level": 3}, tasks=5)
    assert engine.reset("4").text == "seed 4"
    assert wire.heard[0] == {"type": "reset", "data": {"level": 3, "seed": 4}}
    engine.close()
    with pytest.raises(UnknownName):
        engine.reset("5")


def test_a_server_that_goes_away_is_a_world_error_and_reset_connects_again(wire: Wire) -> None:
    engine = OpenEnvEngine(wire.url)
    engine.reset()
    wire.says = lambda message: None
    with pytest.raises(WorldError, match=r"session with the server broke; .*ConnectionClosed"):
        engine.step("hello")
    with pytest.raises(ResetNeeded):
        engine.step("hello")
    wire.says = wire.echo
    assert engine.reset().text == "seed 0"
    assert engine.step("hello").text == "hello"
    engine.close()


def test_an_answer_that_comes_late_is_never_taken_for_another(wire: Wire) -> None:
    engine = OpenEnvEngine(wire.url, timeout_s=0.2)
    engine.reset()
    release = threading.Event()

    def slow(message: dict[str, Any]) -> str:
        release.wait(10)
        return Wire.observation("late")

    wire.says = slow
    with pytest.raises(WorldError, match="TimeoutError"):
        engine.step("hello")
    wire.says = wire.echo
    release.set()
    assert engine.reset().text == "seed 0"
    engine.close()


def test_a_failure_of_the_environment_is_none_of_the_policys(wire: Wire) -> None:
    engine = OpenEnvEngine(wire.url)
    engine.reset()
    error = {"message": "division by zero", "code": "EXECUTION_ERROR"}
    wire.says = lambda message: json.dumps({"type": "error", "data": error})
    with pytest.raises(WorldError, match=r"environment failed; .*EXECUTION_ERROR: division by zero"):
        engine.step("hello")
    error["code"] = "CAPACITY_REACHED"
    with pytest.raises(WorldError, match="CAPACITY_REACHED"):
        engine.reset()
    engine.close()


def test_what_cannot_be_is_said(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = OpenEnvEngine(wire.url)
    with pytest.raises(ResetNeeded):
        engine.step("hello")
    with pytest.raises(CloneUnsupported):
        engine.clone()
    with pytest.raises(WorldError, match=r"does not answer; .*next: check that an OpenEnv server runs there"):
        OpenEnvEngine("http://127.0.0.1:9", timeout_s=1)
    with pytest.raises(WorldError, match="404"):
        OpenEnvEngine(f"{wire.url}/deeper")
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(MissingExtra, match=r'pip install "agentgym-tok\[openenv\]"'):
        engine.reset()
