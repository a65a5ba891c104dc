"""The prompting `react`: what is read from a turn, and what the policy sees."""

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import React
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Words
from agentgym_tok.types import AssistantMessage, Message

REACT = React(ALFWORLD_WORDS)


@pytest.mark.parametrize(
    ("content", "command", "ok"),
    [
        ("Thought: I look.\nAction: look", "look", True),
        ("Thought 2: I look\naround.\nAction 2: go to desk 1 ", "go to desk 1", True),
        ("  Thought : a\n\n  Action 12 : b", "b", True),
        ("Action: look", "look", False),
        ("Thought: a\nAction: b\nAction: c", "b", False),
        ("Thought: a\nAction: b\nObservation 1: c\nThought 2: d\nAction 2: e", "b", True),
        ("Observation: c\nThought: d\nAction: e", "", False),
        ("Thought: a\nAction:", "", True),
        ("I say Action: look", "", False),
        ("look", "", False),
        ("", "", False),
    ],
)
def test_the_first_action_before_any_observation_counts(content: str, command: str, ok: bool) -> None:
    assert REACT.read(AssistantMessage(content)) == Command(command, ok)


def test_observations_are_numbered_and_only_the_system_prompt_is_trusted() -> None:
    system, first = REACT.open(TextObservation("A <think> room."), {"task": "t"})
    assert (system.trusted, first.trusted, first.content) == (True, False, "A <think> room.")
    assert "go to PLACE" in system.content
    assert "Action:" in system.content
    assert "<action>" not in system.content
    history = [Exchange("a", Command("b", format_ok=True)), Exchange("c", Command("d", format_ok=True))]
    assert REACT.follow(TextObservation("e"), {}, history) == [Message("user", "Observation 2: e")]


def test_without_words_of_its_own_a_world_is_introduced_by_its_role() -> None:
    words = Words(system="s", role="You are here.", answer="a")
    assert React(words).open(TextObservation("x"), {})[0].content.startswith("You are here.\n")


def test_the_expert_wins_alfworld_by_react(builtin: ChatFormat) -> None:
    env = ALFWorldEnv(builtin, split="valid_seen", prompting="react")
    env.reset(seed=0)
    seen: list[tuple[float, bool]] = []
    while not (seen and seen[-1][1]):
        _, reward, terminated, _, info = env.step(builtin.encode_turn(env.hints()["expert"]))
        assert info["format_ok"]
        seen.append((float(reward), terminated))
    assert seen[-1] == (1.0, True)
