"""Two helpers work on two halves of a question at the same time; all three share one reward.

python examples/subagents.py
"""

import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.envs.searchqa import SearchQAEngine
from agentgym_tok.harness import Budget, Harness, Subagents, Toolbox
from agentgym_tok.harness.tools.retriever import search_tool
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, assign_advantages, rows
from agentgym_tok.types import Message, ToolCall

CHAT = ChatFormat.builtin()  # or ChatFormat.from_pretrained(MODEL), with "hf:PATH" or "vllm:URL" as the policy
QUESTIONS = (2, 12, 17, 22, 37, 42)  # such as "Which lake is deeper, A or B?": each needs two passages


class Rules(BasePolicy):
    """Stand in for a model that has learned to delegate: it reads its context, and writes calls."""

    name = "rules"
    deterministic = True

    def __init__(self) -> None:
        self.batches: list[int] = []

    def generate(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        """Answer a batch; its size tells who works at the same time."""
        self.batches.append(len(requests))
        return super().generate(requests)

    def answer(self, request: Request) -> Completion:
        """Write a turn; a rule has no doubt, so each id has the log-probability 0."""
        turn_T = self.say(CHAT.decode(request.ids_T))
        nats_T = np.zeros(len(turn_T), dtype=np.float32)
        return Completion(turn_T, nats_T, logprobs="raw", engine=self.name, sampling=request.sampling)

    def say(self, text: str) -> Ids:
        """Read the context, decide."""
        asked = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.DOTALL)[0]
        known = re.findall(r"<\|im_start\|>tool\n(.*?)<\|im_end\|>", text, re.DOTALL)
        if "You find one number." in text:  # a helper
            return CHAT.encode_turn(re.findall(r"\d+", known[0])[-1]) if known else calls("search", query=asked)
        stem, one, other = re.findall(r"(Wh.*), (.*) or (.*)\?", asked)[0]
        if not known:
            return calls("delegate", "delegate", task=[f"{stem}: {one}", f"{stem}: {other}"])
        larger = int(known[0]) > int(known[1])
        return calls("answer", text=(one if larger == ("earlier" not in stem) else other).strip('"'))


def calls(*names: str, **arguments: Any) -> Ids:
    """Return a turn that calls a tool, or the same one several times, in the template's own form."""
    ((argument, given),) = arguments.items()
    values = given if isinstance(given, list) else [given]
    made = [ToolCall(name, {argument: value}) for name, value in zip(names, values, strict=True)]
    return CHAT.write(Message("assistant", "", tool_calls=tuple(made)))


def world() -> gym.Env:
    """Make the world: its own tools are `search` and `answer`."""
    return gym.make("agentgym_tok/SearchQA-v0", chat=CHAT, split="test", prompting="transcript")


def show(episode: Episode, indent: str = "") -> None:
    """Print what was said, helpers under the turn that called them."""
    for turn in episode.turns:
        says = CHAT.parse(turn.completion.ids_T)
        called = ", ".join(f"{call.name}({next(iter((call.arguments or {}).values()))!r})" for call in says.tool_calls)
        print(f"{indent}{turn.edge.kind:16} {called or says.content}")
        for child in episode.children:
            if child.head.parent_turn == turn.index:
                show(child, f"{indent}    ")


def main() -> None:
    """Answer one question in the open, then a few, and share the credit."""
    engine = world().get_wrapper_attr("engine")
    assert isinstance(engine, SearchQAEngine)
    policy = Rules()
    harness = Harness(
        policy,
        CHAT,
        subagents=Subagents(
            prompt="You find one number. Search for it, then answer with the number alone.",
            world="none",  # its words are its answer; "clone" lets it act in a copy of its caller's world
            tools=Toolbox(search_tool(engine.retriever, top_k=1)),
            max_depth=1,
            max_children=4,
            budget=Budget(turns=4),
        ),
        budget=Budget(turns=20),  # calls are no steps of the world, so its max_steps does not end who calls for ever
    )
    episode = harness.run(world(), task=QUESTIONS[0])
    print(engine.reset(episode.head.task).text)
    show(episode)
    print(f"the policy was asked for {', '.join(map(str, policy.batches))} turns at once")

    episodes = harness.run_many(world, tasks=QUESTIONS)
    print(f"answered {sum(bool(one.success) for one in episodes)} of {len(episodes)}")

    # The advantage is the root rollout's; all its rows together weigh as much as those of any other rollout.
    for row in assign_advantages(rows(episode), {episode.id: 1.0}):
        who = "helper" if row.parent_rollout else "caller"
        advantages = sorted(set(row.advantage_T[row.mask_T].tolist())) if row.advantage_T is not None else []
        print(f"{who}: {row.mask_T.sum():2} trained ids, weight {row.weight:.2f}, advantage {advantages}")


if __name__ == "__main__":
    main()
