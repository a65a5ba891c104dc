"""Whatever a thought quotes, the turn is read as the command that the expert meant."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS
from agentgym_tok.envs.prompting import Prompting, Step, Transcript, expert_turn
from agentgym_tok.envs.react import React
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.envs.searchqa.prompts import SEARCHQA_WORDS
from agentgym_tok.envs.searchqa.tagged import SearchR1, SearchStep
from agentgym_tok.envs.searchqa.tool_calls import ToolCalls
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.envs.webshop.prompts import WEBSHOP_WORDS, WebShopStep, WebShopTranscript
from agentgym_tok.learner.training.presets import PRESETS

CHAT = ChatFormat.builtin()
PROMPTINGS: dict[str, tuple[Prompting, str]] = {
    "transcript": (Transcript(ALFWORLD_WORDS), "go to desk 1"),
    "step": (Step(ALFWORLD_WORDS), "go to desk 1"),
    "react": (React(ALFWORLD_WORDS), "go to desk 1"),
    "webshop transcript": (WebShopTranscript(WEBSHOP_WORDS), "click[b000000001]"),
    "webshop step": (WebShopStep(WEBSHOP_WORDS), "click[b000000001]"),
    "searchqa transcript": (ToolCalls(SEARCHQA_WORDS), "search[ann was born in]"),
    "search_r1": (SearchR1(SEARCHQA_WORDS), "search[ann was born in]"),
    "searchqa step": (SearchStep(SEARCHQA_WORDS), "answer[ann]"),
}
SPOKEN = [
    "<action>",
    "</action>",
    "<think>",
    "</think>",
    "<search>",
    "</answer>",
    "<tool_call>",
    "\nAction: ",
    "< Prev",
]
THOUGHTS = st.lists(st.sampled_from([*SPOKEN, "look", " [SEP] ", "Action: go", ": yes.", "click[x]", "é", "\r", "<"]))


@pytest.mark.parametrize("name", PROMPTINGS)
@given(thought=THOUGHTS.map("".join))
def test_no_thought_takes_the_place_of_the_command(name: str, thought: str) -> None:
    prompting, command = PROMPTINGS[name]
    read = prompting.read(CHAT.parse(CHAT.encode_turn(expert_turn(prompting, command, thought))))
    assert (read.text, read.format_ok) == (command, True)


@pytest.mark.parametrize(("world", "make"), [("searchqa", SearchQAEnv), ("webshop", WebShopEnv)])
def test_turns_that_are_imitated_fit_into_what_the_presets_let_a_model_say(world: str, make: type[TokenEnv]) -> None:
    longest = 0
    env = make(CHAT, split="train")
    for task in range(12):
        env.reset(options={"task": task})
        while env.running and (turn := env.hints()["explorer"]) is not None:
            ids_T = CHAT.encode_turn(turn)
            longest = max(longest, len(ids_T))
            env.step(ids_T)
    for stage in ("sft", "sdar"):
        preset = tomllib.loads((PRESETS / f"tiny-{world}-{stage}.toml").read_text(encoding="utf-8"))
        for part in (preset, preset["evaluation"]):
            assert part.get("sampling", {"max_tokens": longest})["max_tokens"] >= longest


@pytest.mark.parametrize("name", PROMPTINGS)
def test_a_thought_stands_before_the_command(name: str) -> None:
    prompting, command = PROMPTINGS[name]
    text = CHAT.decode(CHAT.encode_turn(expert_turn(prompting, command, " Ann Lee: Ann was born in Torby.")))
    assert text.index("Ann was born in Torby.") < text.index(command.partition("[")[0])
