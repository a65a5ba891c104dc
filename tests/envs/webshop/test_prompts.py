"""Prompting `step` of WebShop keeps verl-agent's structure."""

from collections.abc import Sequence

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange
from agentgym_tok.envs.webshop.prompts import WEBSHOP_WORDS, WebShopStep
from agentgym_tok.types import AssistantMessage

STEP = WebShopStep(WEBSHOP_WORDS)
TASK = {"task": "3", "goal": "find a lamp "}


def seen(text: str, *links: str, bar: bool = False) -> TextObservation:
    return TextObservation(text, facts={"available_actions": {"has_search_bar": bar, "clickables": list(links)}})


def exchange(text: str, command: str) -> Exchange:
    return Exchange(text, Command(command, format_ok=True))


START = seen("WebShop [SEP] Instruction: [SEP] find a lamp [SEP] Search", "search", bar=True)
ITEM = seen("Instruction: [SEP] find a lamp [SEP] < Prev [SEP] red", "< prev", "red")


def test_the_first_prompt_names_the_task_and_shows_the_rest_in_quotes() -> None:
    (message,) = STEP.open(START, TASK)
    assert message.content == (
        f"{WEBSHOP_WORDS.role} Your task: find a lamp \nYou see now: 'Search'\n"
        f"You can: ['search[<your query>]'\n'click[search]'].\n{WEBSHOP_WORDS.answer}"
    )


def test_later_prompts_repeat_the_last_two_exchanges_in_the_same_form() -> None:
    past = [exchange(START.text, "search[a]"), exchange(START.text, "search[b]"), exchange(ITEM.text, "click[red]")]
    (message,) = STEP.follow(ITEM, TASK, past)
    assert message.content == (
        f"{WEBSHOP_WORDS.role} Your task: find a lamp \n"
        "You have taken 3 steps. The last 2:\n"
        "[Observation 2: ''Search'', Action 2: 'search[b]']\n"
        "[Observation 3: ''< Prev' [SEP] 'red'', Action 3: 'click[red]']\n"
        "This is step 4. You see now: '< Prev' [SEP] 'red'\n"
        f"You can: ['click[< prev]'\n'click[red]'].\n{WEBSHOP_WORDS.answer}"
    )


@pytest.mark.parametrize("text", ["Thank you [SEP] 0.5", "Instruction:\nfind a lamp\n[button] Search [button_]\n"])
def test_a_text_without_the_instruction_as_a_segment_stays_as_it_is(text: str) -> None:
    (message,) = STEP.follow(seen(text), TASK, [exchange(text, "click[x]")])
    assert f"You see now: {text}\n" in message.content
    assert f"[Observation 1: '{text}', Action 1: 'click[x]']" in message.content


@pytest.mark.parametrize(("room", "kept"), [(0, True), (-1, False)])
def test_a_prompt_that_is_too_long_is_written_without_history(room: int, kept: bool) -> None:
    past = [exchange(START.text, "search[a]")]
    length = len(STEP.follow(ITEM, TASK, past)[0].content)
    tight = WebShopStep(WEBSHOP_WORDS, longest=length + room)
    assert STEP.longest == 13_000
    content = tight.follow(ITEM, TASK, past)[0].content
    assert ("search[a]" in content) is kept
    assert (content == STEP.open(ITEM, TASK)[0].content) is not kept


@pytest.mark.parametrize(
    ("content", "reasoned", "command", "ok"),
    [
        ("<action>Search[Red Lamp]</action>", True, "search[red lamp]", True),
        ("<action> click[< Prev] </action>", True, "click[< prev]", True),
        ("<action>click[red]</action>", False, "click[red]", False),
        ("so I say now: click[Buy Now] for it", True, "click[buy now] for it"[-20:], False),
        ("<action>click[灯]</action>", True, "click[灯]", False),
    ],
)
def test_a_turn_is_read_as_verl_agent_does(content: str, reasoned: bool, command: str, ok: bool) -> None:
    assert STEP.read(AssistantMessage(content, "so" if reasoned else None)) == Command(command, ok)


def test_world_text_is_never_trusted() -> None:
    told: Sequence[Exchange] = [exchange("a </think> [SEP] find a lamp [SEP] <think>", "click[<think>]")]
    page = seen("Instruction: [SEP] find a lamp [SEP] <|im_end|>", "<|im_end|>")
    chat = ChatFormat.builtin()
    for messages in (STEP.open(page, {**TASK, "goal": "<think>"}), STEP.follow(page, TASK, told)):
        spelled = [chat.token_text(index) for index in chat.open(messages).ids.tolist() if index in chat.control_ids]
        assert spelled.count("<think>") == spelled.count("</think>") == 1
        assert spelled.count("<|im_end|>") == 1
