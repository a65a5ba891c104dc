"""Figures of how things are spread: steps, tokens, contexts, returns, seconds."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from agentgym_tok.evaluate.report.charts import Bars, Figure, Panel
from agentgym_tok.evaluate.report.played import Played
from agentgym_tok.evaluate.report.scored import part_names
from agentgym_tok.evaluate.report.sources import Run

__all__ = ["bars", "spread_figures"]

Counted: TypeAlias = Mapping[float, int]
"""How often each value occurs."""

_MOST_BARS = 24
_STEPS_OF_TEN = (1, 2, 2.5, 5, 10)


def spread_figures(runs: Sequence[Run], played: Mapping[int, Played], names: tuple[str, ...]) -> Iterator[Figure]:
    """Yield a figure for each quantity, a panel for each part.

    Args:
        runs: The runs.
        played: What traces say, by run's number, where there are some.
        names: Of all runs.
    """
    wanted = (
        ("steps", "Steps of an episode", "turns"),
        ("tokens", "Tokens of a turn", "tokens"),
        ("contexts", "Longest context of an episode", "tokens"),
        ("returns", "Return of an episode", "return"),
        ("seconds", "Time of an episode", "seconds"),
    )
    for name, title, x in wanted:
        panels = []
        for part in part_names(runs):
            found = {run.number: _values(run, part, name, played.get(run.number)) for run in runs if run.results}
            counted = {number: values for number, values in found.items() if values}
            if counted:
                panels.append(Panel(part, bars(counted, x)))
        if panels:
            notes = {"seconds": "From the first request to the last answer; episodes run beside each other."}
            note = f"Share of {'turns' if name == 'tokens' else 'episodes'}. {notes.get(name, '')}".strip()
            yield Figure(f"spread-{name}", title, tuple(panels), names, note)


def _values(run: Run, part: str, name: str, played: Played | None) -> Counted:
    found = run.results.of_part(part) if run.results else []
    if name == "tokens":
        return {} if played is None else {float(key): n for key, n in played.turn_tokens.get(part, Counter()).items()}
    if name == "seconds":
        known = {} if played is None else played.seconds
        return Counter(known[one.episode] for one in found if one.episode in known)
    field = {"steps": "steps", "contexts": "context_tokens", "returns": "reward"}[name]
    return Counter(float(getattr(one, field)) for one in found)


def bars(counted: Mapping[int, Counted], x: str) -> Bars:
    """Count values between edges at round numbers, the same for all runs."""
    every = sorted({value for values in counted.values() for value in values})
    edges = _edges(every)
    counts = {}
    for number, values in counted.items():
        places = np.array([*values], dtype=np.float64)
        weights = np.array([*values.values()], dtype=np.int64)
        counts[number] = tuple(np.histogram(places, bins=edges, weights=weights)[0].tolist())
    return Bars(tuple(edges), counts, x)


def _edges(every: Sequence[float]) -> list[float]:
    low, high = every[0], every[-1]
    whole = all(value.is_integer() for value in every)
    if low == high:
        room = 0.5 if whole else 0.1 * abs(low)
        return [low - room, low + room]
    least = (high - low) / _MOST_BARS
    power = 10.0 ** np.floor(np.log10(least))
    step = next(float(size * power) for size in _STEPS_OF_TEN if size * power >= least * (1 - 1e-9))
    if whole:
        step = max(1.0, np.ceil(step))
    # Whole numbers stand in the middle of bars that are one wide.
    shift = 0.5 if whole and step == 1 else 0.0
    first = np.floor((low + shift) / step) * step - shift
    count = int(np.floor((high - first) / step)) + 1
    return [float(round(first + place * step, 12)) for place in range(count + 1)]
