"""Rollouts whose rows have prompts of every kind: one, one for each step, rewritten ones, and those of children."""

from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.harness import Harness, Subagents, SummaryCompaction, WindowCompaction
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, RunMeta, TraceStore
from agentgym_tok.types import Message, Sampling, ToolCall

CHAT = ChatFormat.builtin()
NOTES = "Write notes for yourself."
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "transcript": ({}, {}),
    "step": ({"prompting": "step"}, {}),
    "summary": ({}, {"compaction": SummaryCompaction(at_turns=3, request=NOTES)}),
    "window": ({}, {"compaction": WindowCompaction(at_turns=3, keep=1)}),
    "subagents": ({}, {"subagents": Subagents(prompt="You help another agent.")}),
}


class Speaker(BasePolicy):
    """Walk about, think random ids, write notes where they are asked for, and open a child once."""

    name = "speaker"
    deterministic = True

    def __init__(self) -> None:
        self._opened = False

    def answer(self, request: Request) -> Completion:
        draw = np.random.default_rng(request.seed)
        thought = draw.integers(200, 4000, size=int(draw.integers(1, 9))).tolist()
        text = CHAT.decode(request.ids_T)
        if "delegate" in text and not self._opened:
            self._opened = True
            ids = CHAT.write(
                Message("assistant", "", tool_calls=(ToolCall("delegate", {"task": "Where is it?"}),))
            ).tolist()
        elif text.rstrip().endswith("assistant") and NOTES in text[-200:]:
            ids = CHAT.encode_turn("I walked.").tolist()
        else:
            ids = [*thought, *CHAT.encode_turn("<action>look</action>").tolist()]
        logprobs_T = -draw.random(len(ids)).astype(np.float32)
        return Completion(as_ids(ids), logprobs_T, logprobs="raw", engine="scripted", sampling=request.sampling)


def play(folder: Path, kind: str, *, steps: int = 7, temperature: float = 1.0) -> Episode:
    """Play one episode, and read it back from its trace."""
    options, extras = KINDS[kind]
    env = ALFWorldEnv(CHAT, split="valid_seen", max_steps=steps, **options)
    with TraceStore(folder, meta=RunMeta.of(CHAT)) as store:
        Harness(Speaker(), CHAT, store=store, sampling=Sampling(temperature=temperature), **extras).run(env, seed=3)
    with TraceStore(folder, mode="r") as store:
        return next(store.episodes())
