"""The prompting `transcript`: tool calls in the template's own dialect."""

from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange
from agentgym_tok.envs.searchqa.env import SearchQAEnv
from agentgym_tok.envs.searchqa.prompts import SEARCHQA_WORDS
from agentgym_tok.envs.searchqa.tool_calls import ToolCalls
from agentgym_tok.errors import ConfigError
from agentgym_tok.types import AssistantMessage, Message, ToolCall

PROMPTING = ToolCalls(SEARCHQA_WORDS)
SEARCH = ToolCall("search", {"query": " a b "}, "c1")
ANSWER = ToolCall("answer", {"text": "Ann"})


@pytest.mark.parametrize(
    ("calls", "command"),
    [
        ((SEARCH,), Command("search[a b]", format_ok=True, call=SEARCH)),
        ((ANSWER,), Command("answer[Ann]", format_ok=True, call=ANSWER)),
        ((SEARCH, ANSWER), Command("search[a b]", format_ok=False, call=SEARCH)),
        ((), Command("", format_ok=False)),
        ((ToolCall("search", None, status="invalid_json"),), Command("", format_ok=False)),
        ((ToolCall("find", {"query": "a"}, status="unknown_tool"),), Command("", format_ok=False)),
        ((ToolCall("search", {"text": "a"}),), Command("", format_ok=False, call=ToolCall("search", {"text": "a"}))),
        ((ToolCall("search", {"query": 7}),), Command("", format_ok=False, call=ToolCall("search", {"query": 7}))),
        (
            (ToolCall("search", None, status="unclosed"), ANSWER),
            Command("answer[Ann]", format_ok=False, call=ANSWER),
        ),
    ],
)
def test_the_first_call_that_can_be_read_counts(calls: tuple[ToolCall, ...], command: Command) -> None:
    assert PROMPTING.read(AssistantMessage("search[x]", tool_calls=calls)) == command


def test_a_call_is_answered_by_its_tool_and_a_turn_without_one_by_a_reminder() -> None:
    def follow(command: Command) -> list[Message]:
        return PROMPTING.follow(TextObservation("Found <|im_end|>."), {}, [Exchange("?", command)])

    answered = Message("tool", "Found <|im_end|>.", tool_call_id="c1", name="search")
    assert follow(Command("search[a]", format_ok=True, call=SEARCH)) == [answered]
    (reminder,) = follow(Command("", format_ok=False))
    assert (reminder.role, reminder.content) == ("user", SEARCHQA_WORDS.reminder)


def play(chat: ChatFormat, task: int) -> tuple[float, list[dict[str, Any]]]:
    env = SearchQAEnv(chat, split="test")
    _, info = env.reset(options={"task": task})
    infos, reward = [info], 0.0
    while not (infos[-1]["success"] or infos[-1].get("truncation")):
        _, reward, _, _, info = env.step(chat.encode_turn(env.hints()["expert"]))
        infos.append(info)
    return reward, infos


@pytest.mark.parametrize("name", ["builtin", "qwen2_5", "qwen3", "deepseek_v3"])
def test_the_expert_calls_tools_as_each_template_writes_them(name: str, request: pytest.FixtureRequest) -> None:
    chat: ChatFormat = request.getfixturevalue(name)
    reward, infos = play(chat, 5)
    assert (reward, len(infos)) == (1.0, 6)
    for info in infos[1:]:
        assert (info["format_ok"], info["edge"]) == (True, "continuation")
        assert info["messages"][0].role == "tool"
        assert info["messages"][0].name in {"search", "answer"}
    env = SearchQAEnv(chat, split="test")
    env.reset(seed=0)
    assert [tool["function"]["name"] for tool in env.context.root.tools] == ["search", "answer"]


def test_an_experts_answer_has_the_ids_that_it_has_in_its_passage(builtin: ChatFormat) -> None:
    env = SearchQAEnv(builtin, split="test")
    for task in range(40):
        context_T, info = env.reset(options={"task": task})
        while env.running:
            read_T = context_T
            turn_T = builtin.encode_turn(env.hints()["explorer"])
            context_T, *_, info = env.step(turn_T)
        assert not info["answer"].startswith(" ")
        quoted_T = builtin.encode(f" {info['answer']}")
        for ids_T in (turn_T, read_T):
            assert any(np.array_equal(ids_T[start : start + len(quoted_T)], quoted_T) for start in range(len(ids_T))), (
                info["answer"]
            )


def test_words_of_a_person_that_are_no_command_are_said_as_they_are(builtin: ChatFormat) -> None:
    turn = builtin.parse(builtin.encode_turn(PROMPTING.answer("hello")))
    assert PROMPTING.read(turn) == Command("", format_ok=False)


def test_a_template_without_a_word_for_calls_is_refused(builtin: ChatFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatTemplate, "writes_calls", lambda *_, **__: False)
    with pytest.raises(ConfigError, match="no word for tool calls"):
        SearchQAEnv(builtin)
    assert SearchQAEnv(builtin, prompting="react").prompting.name == "react"
