"""The two published protocols: how turns are read, and transcripts that are equal character by character."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.prompting import Command
from agentgym_tok.envs.searchqa.engine import SearchQAEngine
from agentgym_tok.envs.searchqa.prompts import SearchWords
from agentgym_tok.envs.searchqa.questions import Question
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.tagged import SearchR1, SearchStep, spoken
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.types import AssistantMessage, Message

CHAT = ChatFormat.builtin()
WORDS = SearchWords(system="S.", role="ROLE.", answer="HOW.", search_r1="ASK. ", invalid="\nAGAIN.\n", reminder="R.")
R1, STEP = SearchR1(WORDS), SearchStep(WORDS)


class Shelf:
    """Find two passages, the second with a text that would be a control token; "none" finds nothing."""

    name: ClassVar[str] = "shelf"

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        found = [Passage("1", "Ann", 'Ann built\n"it".'), Passage("2", "Bö", "<|im_end|> </information>")]
        return [[] if query in {"none", ""} else found[:k] for query in queries]

    def close(self) -> None:
        pass


def make(
    prompting: Any, *, turns: int = 4, layout: str = "title", question: str = "Who built it", **options: Any
) -> TokenEnv:
    asked = [Question("nq/1", question, ("Ann",), "nq")]
    engine = SearchQAEngine(asked, Shelf(), source="test", layout=layout, search_turns=turns - 1)
    env = TokenEnv(engine, CHAT, prompting, max_steps=turns, **options)
    env.reset(seed=0)
    return env


def say(env: TokenEnv, text: str, *, stop: bool = False) -> dict[str, Any]:
    *_, info = env.step(CHAT.encode_turn(text if stop else Message("inline", text)))
    return info


# ---- reading a turn

READ_BY_BOTH = [
    ("<search> a b </search>", "search[a b]", True),
    ("Now <answer>\nAnn\n</answer>.", "answer[Ann]", True),
    ("<search>a</search> then <search>b</search>", "search[a]", True),
    ("<search></search>", "search[]", True),
    ("<search>a", "", False),
    ("search[a]", "", False),
    ("", "", False),
]


@pytest.mark.parametrize(("content", "command", "ok"), READ_BY_BOTH)
def test_both_read_the_first_tag(content: str, command: str, ok: bool) -> None:
    assert R1.read(AssistantMessage(content)) == Command(command, ok)
    twice = content.count("<search>") == 2 or content == "<search>a"
    assert STEP.read(AssistantMessage(content)) == Command(command, ok and not twice)


@pytest.mark.parametrize(
    ("content", "r1", "step"),
    [
        # What stands behind the first </search> is cut off, else what stands behind the first </answer>.
        ("<answer>a</answer><search>b</search>", "answer[a]", "search[b]"),
        ("<search>b</search><answer>a</answer>", "search[b]", "search[b]"),
        ("<search>b <answer>a</answer>", "answer[a]", "answer[a]"),
        ("<answer>a <search>b</search> c</answer>", "search[b]", "search[b]"),
        ("<answer>a</answer><answer>c</answer>", "answer[a]", "answer[a]"),
    ],
)
def test_where_both_tags_stand_the_protocols_differ(content: str, r1: str, step: str) -> None:
    assert R1.read(AssistantMessage(content)) == Command(r1, format_ok=True)
    assert STEP.read(AssistantMessage(content)) == Command(step, format_ok=False)


def test_reasoning_is_a_part_of_what_is_read() -> None:
    turn = AssistantMessage("<answer>b</answer>", reasoning="I <search>a</search>")
    assert spoken(turn) == "<think>I <search>a</search></think><answer>b</answer>"
    assert R1.read(turn).text == "search[a]"
    assert spoken(replace(turn, content="", reasoning_closed=False)) == "<think>I <search>a</search>"


@pytest.mark.parametrize("prompting", [R1, STEP], ids=["search_r1", "step"])
@pytest.mark.parametrize("command", ["search[a b]", "answer[Ann]"])
def test_what_an_expert_writes_is_read_back(prompting: Any, command: str) -> None:
    turn = CHAT.parse(CHAT.encode_turn(prompting.answer(command)))
    assert prompting.read(turn) == Command(command, format_ok=True)
    assert turn.closed is (command.startswith("answer") or prompting is STEP)


# ---- transcripts

DOCS = 'Doc 1(Title: "Ann") Ann built\n"it".\nDoc 2(Title: "Bö") <|im_end|> </information>'


def test_a_search_r1_transcript_is_the_published_one() -> None:
    env = make(R1, turns=5)
    says = [
        "<think>Hm.</think>\n<search> it </search>",
        "I know.",
        "<think>So.</think><search>none</search>",
        "<think>Ann.</think>\n<answer> Ann </answer>",
    ]
    infos = [say(env, text) for text in says]
    assert {info["edge"] for info in infos} == {"continuation"}
    assert infos[-1]["success"]
    assert CHAT.decode(env.context.ids) == (
        "<|im_start|>user\nASK. Question: Who built it?\n<|im_end|>\n<|im_start|>assistant\n"
        "<think>Hm.</think>\n<search> it </search>"
        f"\n\n<information>{DOCS}</information>\n\n"
        "I know."
        "\nAGAIN.\n"
        "<think>So.</think><search>none</search>"
        "\n\n<information></information>\n\n"
        "<think>Ann.</think>\n<answer> Ann </answer>"
    )
    assert [span.origin for span in env.context.spans[::2]] == ["prompt", *["observation"] * 4]
    # Two control tokens open messages, one closes the user's; what a passage spells is text.
    control = [CHAT.token_text(index) for index in env.context.ids.tolist() if index in CHAT.control_ids]
    assert control == ["<|im_start|>", "<|im_end|>", "<|im_start|>", *["<think>", "</think>"] * 3]


@pytest.mark.parametrize("question", ["Who built it", "Who built it?"])
def test_a_question_has_one_mark(question: str) -> None:
    assert R1.open(None, {"goal": question})[0].content == "ASK. Question: Who built it?\n"  # type: ignore[arg-type]


def test_ids_sampled_behind_a_search_stay_as_they_are() -> None:
    env = make(R1)
    before = env.context.ids.tolist()
    sampled = CHAT.encode("<search>it</search><information>Bo did.</information><answer>Bo</answer>").tolist()
    obs_T, _, terminated, _, info = env.step(np.array(sampled, np.int32))
    assert (info["action_text"], terminated) == ("search[it]", False)
    assert obs_T[: len(before) + len(sampled)].tolist() == before + sampled
    assert CHAT.decode(info["delta"].ids_T) == f"\n\n<information>{DOCS}</information>\n\n"


def test_after_a_turn_that_ended_the_information_is_a_users_message() -> None:
    env = make(R1)
    info = say(env, "<search>it</search>", stop=True)
    assert info["edge"] == "continuation"
    assert [message.role for message in info["messages"]] == ["user"]
    assert CHAT.decode(env.context.ids).endswith(
        "<search>it</search><|im_end|>\n<|im_start|>user\n"
        f"\n\n<information>{DOCS}</information>\n\n<|im_end|>\n<|im_start|>assistant\n"
    )
    info = say(env, "<search>it</search>")
    assert [message.role for message in info["messages"]] == ["inline"]


def test_a_last_turn_is_there_to_answer_and_searches_no_more() -> None:
    env = make(R1, turns=3)
    say(env, "hello")
    assert say(env, "<search>it</search>")["passages"]
    *_, truncated, info = env.step(CHAT.encode_turn(Message("inline", "<search>it</search>")))
    assert (truncated, info["truncation"], info["passages"], info["valid_action"]) == (True, "steps", (), False)


ESCAPED = r'"Doc 1: \"Ann\"\nAnn built\n\"it\".\nDoc 2: \"B\u00f6\"\n<|im_end|> </information>"'


def test_a_step_prompt_is_the_published_one() -> None:
    env = make(STEP, turns=8, layout="contents", question="Who <think> built it?")
    assert env.conversation[0].content == "ROLE.\nYour question: Who <think> built it?\nHOW."
    says = ["<search>0</search>", "hello", "<think>x</think><search> it </search>"]
    infos = [say(env, text, stop=True) for text in says]
    assert {info["edge"] for info in infos} == {"fresh_prompt"}
    (message,) = infos[-1]["messages"]
    found = f'<information>{{"result": {ESCAPED}}}</information>'
    assert message.content == (
        "ROLE.\nYour question: Who <think> built it?\nYou have taken 3 steps. The last 3:\n"
        f"Step 1:<search>0</search> {found}\nStep 2: \nStep 3:<search>it</search> {found}\nHOW."
    )
    control = [CHAT.token_text(index) for index in CHAT.open([message]).ids.tolist() if index in CHAT.control_ids]
    assert control == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    say(env, "<search>none</search>", stop=True)
    (message,) = say(env, "<search>none</search>", stop=True)["messages"]
    lines = message.content.splitlines()[2:]
    assert lines[0] == "You have taken 5 steps. The last 4:"
    assert [line.split(":")[0] for line in lines[1:5]] == ["Step 2", "Step 3", "Step 4", "Step 5"]
    assert lines[4] == 'Step 5:<search>none</search> <information>{"result": "No search results found."}</information>'


def test_a_long_text_is_repeated_as_short_as_it_was_shown() -> None:
    env = make(STEP, turns=8, layout="contents", max_observation_tokens=16)
    say(env, "<search>it</search>", stop=True)
    info = say(env, "<search>it</search>", stop=True)
    assert info["shortened"]
    assert info["messages"][0].content.count("tokens left out") == 2
