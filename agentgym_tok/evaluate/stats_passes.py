"""Of several samples of one task: how likely some sample of k solves it, and how likely all k do."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import ConfigError

__all__ = ["pass_all_k", "pass_at_k"]


def pass_at_k(solved_C: ArrayLike, drawn_C: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return for each task the unbiased estimate of pass@k: that at least one of k samples solves it.

    Args:
        solved_C: int [C], how many samples solved the task.
        drawn_C: int [C], out of how many.
        k: Samples that one may draw.

    Returns:
        float64 [C]: `1 - C(n - c, k) / C(n, k)`.

    Raises:
        ConfigError: A task has less than k samples, or more solved than drawn.

    Source: Chen et al. (2021), Evaluating Large Language Models Trained on Code, equation 1.
    """
    solved, drawn = _checked(solved_C, drawn_C, k)
    return 1 - _all_chosen(drawn - solved, drawn, k)


def pass_all_k(solved_C: ArrayLike, drawn_C: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return for each task the unbiased estimate of pass^k: that all of k samples solve it.

    Args:
        solved_C: int [C], how many samples solved the task.
        drawn_C: int [C], out of how many.
        k: Samples that one draws.

    Returns:
        float64 [C]: `C(c, k) / C(n, k)`.

    Raises:
        ConfigError: A task has less than k samples, or more solved than drawn.

    Source: Yao et al. (2024), tau-bench, section 3.
    """
    solved, drawn = _checked(solved_C, drawn_C, k)
    return _all_chosen(solved, drawn, k)


def _all_chosen(these: NDArray[np.int64], drawn: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return how likely k of the drawn samples are all among these: a product, since factorials overflow."""
    chances = np.ones(len(drawn))
    for place in range(k):
        chances *= np.maximum(these - place, 0) / (drawn - place)
    return chances


def _checked(solved_C: ArrayLike, drawn_C: ArrayLike, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    solved, drawn = np.asarray(solved_C, dtype=np.int64), np.asarray(drawn_C, dtype=np.int64)
    if k < 1 or (drawn < k).any() or (solved < 0).any() or (solved > drawn).any():
        got = f"k = {k}, of {int(drawn.min(initial=0))} samples at least"
        expected = "k from 1 to the fewest samples of a task, none solved more often than drawn"
        raise ConfigError("impossible counts", where="pass@k, pass^k", got=got, expected=expected)
    return solved, drawn
