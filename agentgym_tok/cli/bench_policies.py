"""`agentgym-tok bench policies`: how many ids a small model reads and draws, by numpy and by transformers."""

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import report
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.policies import load_policy
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, Policy, Request, Sampling

__all__ = ["Options", "run"]

_SHIPPED = Path(__file__).parents[1] / "policies" / "small" / "weights" / "alfworld"


class Options(Config):
    """Continue conversations side by side, turn by turn, with the weights that ship or others of the builtin format.

    Each conversation begins with the prompt of a game of ALFWorld; what follows a turn is the beginning of another
    game, as long as an answer of the world, and turns that end early are filled up. Ids are those of all contexts and
    turns, each counted once; seconds are those of this process's CPU time.
    """

    model: str = Field(default=str(_SHIPPED), description="folder of a small Qwen2")
    conversations: int = Field(default=64, ge=1, description="conversations at once")
    turns: int = Field(default=15, ge=1, description="turns of each")
    new_ids: int = Field(default=40, ge=1, description="ids of the world's answer to a turn")
    drawn_ids: int = Field(default=10, ge=1, description="ids of a turn")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    chat = ChatFormat.builtin()
    names = ["numpy", *(("hf",) if find_spec("torch") is not None and find_spec("transformers") is not None else ())]
    figures: dict[str, float] = {}
    for name in names:
        extra = "&device=cpu" if name == "hf" else ""
        with_name = f"{name}:{options.model}?batch_size={options.conversations}{extra}"
        policy = load_policy(with_name, chat)
        figures[f"{name}: ids per CPU second"] = _rate(policy, chat, options)
    if "hf" in names:
        figures["ids per CPU second, times those of hf"] = (
            figures["numpy: ids per CPU second"] / figures["hf: ids per CPU second"]
        )
    report(f"policies, {options.conversations} conversations of {options.turns} turns", figures, options, options.out)
    if "hf" not in names:
        print("torch and transformers cannot be imported here: nothing was measured of hf:")
    return 0


def _rate(policy: Policy, chat: ChatFormat, options: Options) -> float:
    """Return ids of contexts and turns a second."""
    env = ALFWorldEnv(chat, split="valid_seen")
    openings = [env.reset(seed=seed)[0] for seed in range(options.conversations)]
    contexts = [np.asarray(opening_T) for opening_T in openings]
    sampling = Sampling(temperature=1.0, max_tokens=options.drawn_ids)
    policy.generate([Request(openings[0], sampling, conversation="what is made once")])
    spent = 0.0
    for turn in range(options.turns):
        requests = [
            Request(context_T, sampling, seed=turn, conversation=str(place)) for place, context_T in enumerate(contexts)
        ]
        start = time.process_time()
        answers = policy.generate(requests)
        spent += time.process_time() - start
        contexts = [
            np.concatenate([context_T, _drawn(answer, options.drawn_ids), opening_T[-options.new_ids :]])
            for context_T, answer, opening_T in zip(contexts, answers, openings, strict=True)
        ]
    return sum(map(len, contexts)) / spent


def _drawn(answer: Completion | Exception, count: int) -> Ids:
    """Return the ids of a turn, filled up where it ended early."""
    if isinstance(answer, Exception):
        raise answer
    return np.resize(answer.ids_T, count)
