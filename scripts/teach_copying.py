"""Teach a small model to copy, before it imitates: what stands once in a context is said again, id by id.

python scripts/teach_copying.py new:qwen2?hidden=128&layers=4 runs/copying --steps 600

Names and numbers that a model has never seen can only be copied. In demonstrations that is a few ids of each turn, and
found late; here it is every second id of a row: pieces of random ids, and then parts of them in another order.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentgym_tok import ChatFormat
from agentgym_tok.learner import Batch
from agentgym_tok.learner.losses import OBJECTIVES
from agentgym_tok.learner.torch_learner import TorchConfig, TorchLearner
from agentgym_tok.learner.training.models import make_model, save_model
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Row

CHAT = ChatFormat.builtin()
ROWS, PIECES, PARTS = 16, 8, 40
"""Rows of a step; pieces of a row, and parts of them that are said again."""


def alphabets() -> tuple[NDArray[np.int64], ...]:
    """Return the ids that pieces are drawn from: all that are text, those of numbers, and those of codes."""
    texts = {one: CHAT.decode([one]) for one in range(CHAT.vocab_size)}
    words = [one for one, text in texts.items() if text and not text.startswith("<|")]
    numbers = [one for one in words if texts[one].strip().isdigit()]
    codes = [one for one in words if texts[one].isascii() and texts[one].isalnum() and texts[one] == texts[one].upper()]
    return tuple(np.array(ids) for ids in (words, numbers, codes))


def copying_row(draw: np.random.Generator, ids: Sequence[NDArray[np.int64]], name: str) -> Row:
    """Return a row whose second half repeats parts of the first; the first id of each part is nobody's guess."""
    pieces = [draw.choice(ids[draw.integers(len(ids))], size=draw.integers(8, 40)) for _ in range(PIECES)]
    parts, masks = [], []
    for _ in range(PARTS):
        piece = pieces[draw.integers(PIECES)]
        length = draw.integers(2, 9)
        start = draw.integers(len(piece) - length + 1)
        parts.append(piece[start : start + length])
        masks.append(np.arange(length) > 0)
    ids_T = as_ids(np.concatenate([*pieces, *parts]))
    mask_T = np.concatenate([np.zeros(sum(map(len, pieces)), bool), *masks])
    length = len(ids_T)
    return Row(
        ids_T=ids_T,
        mask_T=mask_T,
        logprobs_T=np.zeros(length, np.float32),
        version_T=np.where(mask_T, 0, -1).astype(np.int32),
        turn_T=np.where(mask_T, 0, -1).astype(np.int32),
        temperature_T=np.ones(length, np.float32),
        advantage_T=None,
        reward=1.0,
        turn_rewards_N=np.ones(1),
        anchor_N=("",),
        valid_N=np.ones(1, np.int8),
        rollout_id=name,
        group_id=name,
        task="copying",
        parent_rollout=None,
        weight=1.0,
        status="done",
        versions=("0",),
    )


def main() -> None:
    """Train, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model, or new:qwen2?...")
    parser.add_argument("out", type=Path, help="folder of the run; the model is written into OUT/model")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = make_model(options.model, CHAT, options.out / "start")
    config = TorchConfig(
        device="cpu",
        optimizer="muon",
        learning_rate=options.learning_rate,
        betas=(0.9, 0.98),
        warmup=20,
        decay=options.steps,
        micro_tokens=4096,
    )
    learner = TorchLearner(model, CHAT, OBJECTIVES["sft"], config)
    ids = alphabets()
    for step in range(options.steps):
        draw = np.random.default_rng([options.seed, step])
        figures = learner.update(Batch([copying_row(draw, ids, str(place)) for place in range(ROWS)]))
        if step % 10 == 9:
            print(f"step {step + 1}: {figures['policy/loss']:.3f} nats an id", flush=True)
    save_model(learner.model, learner.weights(), model, CHAT, options.out / "model")


if __name__ == "__main__":
    main()
