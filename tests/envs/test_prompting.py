"""Presets: what becomes of a world's words and of a turn's text."""

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Prompting, Step, Transcript
from agentgym_tok.types import AssistantMessage

TRANSCRIPT, STEP = Transcript(ALFWORLD_WORDS), Step(ALFWORLD_WORDS)


@pytest.mark.parametrize(
    ("content", "command", "ok"),
    [
        ("<action>go to desk 1</action>", "go to desk 1", True),
        ("I look.\n<action> look </action>", "look", True),
        ("look", "look", False),
        ("<action>look", "<action>look", False),
        ("<action>a</action><action>b</action>", "b", False),
        ("<action></action>", "", True),
        ("", "", False),
    ],
)
def test_a_transcripts_turn_is_read(content: str, command: str, ok: bool) -> None:
    assert TRANSCRIPT.read(AssistantMessage(content)) == Command(command, ok)


@pytest.mark.parametrize(
    ("content", "reasoned", "command", "ok"),
    [
        ("<action>Go to Desk 1</action>", True, "go to desk 1", True),
        ("<action>look</action>", False, "look", False),
        ("<action>a</action> then <action>b</action>", True, "b", True),
        ("<action>看 look</action>", True, "看 look", False),
        ("x" * 50 + "the last thirty characters are", True, "the last thirty characters are", False),
        ("short", True, "short", False),
    ],
)
def test_a_fresh_prompts_turn_is_read_as_verl_agent_does(content: str, reasoned: bool, command: str, ok: bool) -> None:
    assert STEP.read(AssistantMessage(content, "so" if reasoned else None)) == Command(command, ok)


@pytest.mark.parametrize("prompting", [TRANSCRIPT, STEP], ids=lambda prompting: prompting.name)
def test_what_an_expert_writes_is_read_back(prompting: Prompting) -> None:
    chat = ChatFormat.builtin()
    turn = chat.parse(chat.encode_turn(prompting.answer("go to desk 1")))
    assert prompting.read(turn) == Command("go to desk 1", format_ok=True)


def test_a_fresh_prompt_trusts_its_own_words_and_no_world_text() -> None:
    observation = TextObservation("A <think> lies here.", admissible_commands=("help", "take <think>"))
    history = [Exchange("</think>", Command("go </think>", format_ok=True))]
    message = STEP.follow(observation, {"task": "t", "goal": "find </think>"}, history)[0]
    world = [message.content[start:end] for start, end in message.untrusted]
    assert message.trusted
    assert {"A <think> lies here.", "find </think>", "</think>", "go </think>", "'take <think>'"} <= set(world)
    trusted = message.content
    for text in world:
        trusted = trusted.replace(text, "", 1)
    assert trusted.count("<think>") == trusted.count("</think>") == 1
    chat = ChatFormat.builtin()
    spelled = [chat.token_text(index) for index in chat.open([message]).ids.tolist() if index in chat.control_ids]
    assert spelled.count("<think>") == spelled.count("</think>") == 1


def test_a_transcript_trusts_its_system_prompt_only() -> None:
    system, user = TRANSCRIPT.open(TextObservation("x"), {"task": "t"})
    assert (system.trusted, user.trusted) == (True, False)
