"""How tokens are drawn from logits, in numpy: by temperature, top-k and top-p, each turn by a generator of its seed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.chat import ChatFormat
from agentgym_tok.policies.base import Listen
from agentgym_tok.policies.turn import Turn, no_numbers
from agentgym_tok.types import Request, Sampling

__all__ = ["SeededTurn", "draw", "left", "nats"]


class SeededTurn(Turn):
    """Draw the turn of one request; see `Turn` for the arguments."""

    def __init__(self, request: Request, chat: ChatFormat, room: int, listen: Listen | None = None) -> None:
        super().__init__(request, chat, room, listen)
        self.generator = np.random.default_rng(request.seed)


def draw(turns: Sequence[SeededTurn], logits_NV: NDArray[np.float32], version: str) -> None:
    """Draw the next id of each turn.

    Args:
        turns: N open ones.
        logits_NV: float32 [N, V].
        version: The weights that computed them.
    """
    alike: dict[Sampling, list[int]] = {}
    for index, turn in enumerate(turns):
        if np.isfinite(logits_NV[index]).all():
            alike.setdefault(turn.sampling, []).append(index)
        else:
            turn.fail(no_numbers(f"token {len(turn)} of a turn"))
    for sampling, indices in alike.items():
        left_NV = left(logits_NV[indices], sampling)
        top_N = left_NV.max(-1)
        masses_NV = np.cumsum(np.exp(left_NV - top_N[:, None]), axis=-1, dtype=np.float64)
        for row, index in enumerate(indices):
            turn, masses_V = turns[index], masses_NV[row]
            if sampling.temperature == 0:
                place = int(left_NV[row].argmax())
            else:
                # Below the whole mass, where rounding would reach it: the id after the last is none.
                point = min(turn.generator.random() * masses_V[-1], np.nextafter(masses_V[-1], 0))
                place = int(masses_V.searchsorted(point, side="right"))
            turn.add(place, float(left_NV[row, place] - top_N[row]) - float(np.log(masses_V[-1])), version)


def left(logits_NV: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float32]:
    """Return the logits that tokens are drawn by, unnormalised.

    Args:
        logits_NV: float32 [N, V].
        sampling: Temperature first, then top-k, then top-p over what is left, as engines do; 0 leaves the model's own.

    Returns:
        float32 [N, V]; -inf where a token cannot be drawn.
    """
    if sampling.temperature == 0:
        return logits_NV
    left_NV = logits_NV / np.float32(sampling.temperature)
    if 0 < sampling.top_k < left_NV.shape[-1]:
        floor_N1 = np.partition(left_NV, -sampling.top_k, axis=-1)[:, -sampling.top_k, None]
        left_NV = np.where(left_NV < floor_N1, np.float32(-np.inf), left_NV)
    if sampling.top_p < 1:
        places_NV = np.argsort(-left_NV, axis=-1, kind="stable")
        ordered_NV = np.take_along_axis(left_NV, places_NV, -1)
        masses_NV = np.exp(ordered_NV - ordered_NV[:, :1], dtype=np.float64)
        before_NV = (np.cumsum(masses_NV, axis=-1) - masses_NV) / masses_NV.sum(-1, keepdims=True)
        dropped_NV = np.empty(left_NV.shape, bool)
        np.put_along_axis(dropped_NV, places_NV, before_NV >= sampling.top_p, -1)
        left_NV = np.where(dropped_NV, np.float32(-np.inf), left_NV)
    return left_NV


def nats(logits_NV: NDArray[np.float32], ids_N: NDArray[np.integer], sampling: Sampling) -> NDArray[np.float32]:
    """Return how likely each row draws its id, to the bit as `draw` says it.

    Args:
        logits_NV: float32 [N, V].
        ids_N: int [N].
        sampling: The parameters in force.

    Returns:
        float32 [N], nats; -inf where the id cannot be drawn.
    """
    left_NV = left(logits_NV, sampling)
    top_N = left_NV.max(-1)
    masses_N = np.cumsum(np.exp(left_NV - top_N[:, None]), axis=-1, dtype=np.float64)[:, -1]
    chosen_N = (left_NV[np.arange(len(ids_N)), ids_N] - top_N).astype(np.float64)
    nats_N: NDArray[np.float32] = np.minimum(chosen_N - np.log(masses_N), 0).astype(np.float32)
    return nats_N
