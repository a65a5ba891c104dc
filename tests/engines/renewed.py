"""Weights after weights, and the proof that each token was drawn from those that it names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from played import TOLERANCE

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.policies.weight_files import WeightFiles
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import ScoreRequest

__all__ = ["asked", "prove_versions", "states", "turns_of"]


def states(folder: Path, count: int) -> list[dict[str, Any]]:
    """Return the weights of the folder, and others after them; a tenth of the values differs each time.

    By a tenth of what they spread: a model that was broken has logits in which float32 itself differs by more.
    """
    found = [WeightFiles(folder).read()]
    draw = torch.Generator().manual_seed(7)
    for _ in range(count - 1):
        new = {name: tensor.clone() for name, tensor in found[-1].items()}
        for tensor in new.values():
            places = torch.randint(tensor.numel(), (tensor.numel() // 10 + 1,), generator=draw)
            # A norm that was never trained has one value, and spreads by nothing.
            spread = float(tensor.float().std()) or 0.1
            tensor.view(-1)[places] += 0.1 * spread * torch.randn(len(places), generator=draw)
        found.append(new)
    return found


def asked(chat: ChatFormat, count: int, longest: int) -> list[Request]:
    """Return requests of unequal length, from 20 ids on; long ones share the engine's prefix cache between versions."""
    draw = np.random.default_rng(0)
    prompts = [as_ids(draw.integers(chat.vocab_size, size=20 + 150 * index)) for index in range(count)]
    return [Request(ids_T, Sampling(max_tokens=longest), seed=index) for index, ids_T in enumerate(prompts)]


def turns_of(answers: Sequence[Completion | Exception]) -> list[Completion]:
    """Return the turns, none of which is an error."""
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers), answers
    return turns


def prove_versions(
    folder: Path, chat: ChatFormat, named: dict[str, Any], drawn: Sequence[tuple[Request, Completion]]
) -> float:
    """Check each token's log-probability against transformers with the weights that the token names.

    Returns:
        The largest difference, in nats.
    """
    largest, proven = 0.0, 0
    scorer = HFPolicy(folder, chat, device="cpu")
    for version, state in named.items():
        scorer.update_weights(state, version)
        for request, turn in drawn:
            start, whole_T = len(request.ids_T), as_ids(np.concatenate([request.ids_T, turn.ids_T]))
            (scores,) = scorer.score([ScoreRequest(whole_T, ((start, len(whole_T), request.sampling),))])
            assert turn.logprobs_T is not None
            for _, first, last in (run for run in turn.weight_versions if run[0] == version):
                apart = np.abs(turn.logprobs_T[first:last] - scores.raw_S[first:last])
                largest, proven = max(largest, float(apart.max(initial=0))), proven + last - first
    assert proven == sum(len(turn.ids_T) for _, turn in drawn)
    assert largest < TOLERANCE, f"{largest:.1e} nats"
    return largest
