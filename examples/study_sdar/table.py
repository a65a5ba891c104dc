"""What the cells came to: rates with intervals over seeds and games, and paired tests between arms."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from measured import TEST_FOLDERS, Measured
from numpy.typing import NDArray

__all__ = ["Compared", "Line", "compared", "lines", "outcomes"]

_DRAWS = 10_000
_EXACT = 2**16
"""Most sign changes that are all tried."""


@dataclass(frozen=True, slots=True)
class Line:
    """Hold a line of the table: success rates in percent, with 95 % intervals over seeds and games."""

    name: str
    seeds: int
    seen: float
    unseen: float
    all: float
    low: float
    high: float
    turns: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Hold the difference of two arms in points, game by game.

    Args:
        name: Who is compared with whom.
        seeds: How many pairs of seeds.
        difference: Of the success rates.
        low: 95 % interval over pairs of seeds and games.
        high: Its end.
        p_games: Of a sign test by permutation over games, given these runs.
        p_seeds: Of the same over pairs of seeds: what other runs would show. With N pairs it is never below 2 / 2^N.
    """

    name: str
    seeds: int
    difference: float
    low: float
    high: float
    p_games: float
    p_seeds: float


def outcomes(cells: Sequence[Measured]) -> dict[str, dict[str, Any]]:
    """Lay out the tests of all cells: one line for each arm, and one for each that was tested with skills, too.

    Returns:
        For each line its `solved_S_G` (float [seeds, games]), `turns_S_G`, the `seeds`, the `games` and their `splits`.
    """
    lines: dict[str, list[tuple[int, Any]]] = {}
    for cell in cells:
        for name, test in cell.tests.items():
            line = cell.arm if name == TEST_FOLDERS[0] else f"{cell.arm}, skills"
            lines.setdefault(line, []).append((cell.seed, test))
    found: dict[str, dict[str, Any]] = {}
    for line, tests in lines.items():
        games = [(split, task) for split, tasks in tests[0][1].items() for task in sorted(tasks)]
        values = np.array([[test[split][task] for split, task in games] for _, test in tests], float)
        found[line] = {
            "seeds": [seed for seed, _ in tests],
            "splits": [split for split, _ in games],
            "games": [task for _, task in games],
            "solved_S_G": values[:, :, 0],
            "turns_S_G": values[:, :, 1],
        }
    return found


def lines(found: dict[str, dict[str, Any]], seed: int = 0) -> list[Line]:
    """Return the table."""
    table = []
    for name, one in found.items():
        solved_S_G, splits = one["solved_S_G"], np.array(one["splits"])
        low, high = _interval(solved_S_G, seed)
        seen, unseen = (
            100 * float(solved_S_G[:, splits == split].mean()) if (splits == split).any() else float("nan")
            for split in ("valid_seen", "valid_unseen")
        )
        table.append(
            Line(name, len(solved_S_G), seen, unseen, 100 * solved_S_G.mean(), low, high, one["turns_S_G"].mean())
        )
    return table


def compared(found: dict[str, dict[str, Any]], name: str, base: str, seed: int = 0) -> Compared:
    """Compare two lines: seed with seed of the same number and game with game; the warm start with every seed."""
    first, second = found[name], found[base]
    if base.startswith("warm"):
        gap_S_G = first["solved_S_G"] - second["solved_S_G"]
    else:
        shared = [seed for seed in first["seeds"] if seed in second["seeds"]]
        one_S_G, other_S_G = (
            side["solved_S_G"][[side["seeds"].index(seed) for seed in shared]] for side in (first, second)
        )
        gap_S_G = one_S_G - other_S_G
    low, high = _interval(gap_S_G, seed)
    return Compared(
        f"{name} - {base}",
        len(gap_S_G),
        100 * float(gap_S_G.mean()),
        low,
        high,
        _sign_p(gap_S_G.mean(0), seed),
        _sign_p(gap_S_G.mean(1), seed),
    )


def _interval(values_S_G: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Return the 95 % interval of a mean in percent, seeds and games drawn again."""
    draw = np.random.default_rng(seed)
    seeds, games = values_S_G.shape
    # Drawing N of N again counts each by a multinomial.
    weights_D_S = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=_DRAWS) / seeds
    weights_D_G = draw.multinomial(games, np.full(games, 1 / games), size=_DRAWS) / games
    means = ((weights_D_S @ values_S_G) * weights_D_G).sum(1)
    low, high = np.percentile(100 * means, [2.5, 97.5])
    return float(low), float(high)


def _sign_p(gaps: NDArray[np.float64], seed: int) -> float:
    """Return the two-sided p of a mean, the signs of its parts changed in all ways, or in many."""
    kept: Sequence[float] = [gap for gap in gaps if gap]
    if not kept:
        return 1.0
    observed = abs(sum(kept))
    if 2 ** len(kept) <= _EXACT:
        sums = [
            abs(sum(sign * gap for sign, gap in zip(signs, kept, strict=True)))
            for signs in product((1, -1), repeat=len(kept))
        ]
        return float(np.mean([value >= observed - 1e-12 for value in sums]))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_DRAWS, len(kept)))
    return float((1 + (np.abs(signs @ np.array(kept)) >= observed - 1e-12).sum()) / (1 + _DRAWS))
