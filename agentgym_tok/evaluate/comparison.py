"""Two runs, task by task: what differs, by how much, and whether that can be chance."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from agentgym_tok.config import Config, differences
from agentgym_tok.evaluate.pairing import Pair, PairedPart, paired
from agentgym_tok.evaluate.results import EpisodeResult
from agentgym_tok.evaluate.run_results import RunResults
from agentgym_tok.evaluate.scores import ALL
from agentgym_tok.evaluate.shaping import shaping
from agentgym_tok.evaluate.stats_bootstrap import bootstrap
from agentgym_tok.evaluate.stats_paired import mcnemar, paired_permutation

__all__ = ["Comparison", "Difference", "Flip", "Option", "PartComparison", "compare"]

_EFFORT = ("steps", "turn_tokens")
"""What is compared beside scores; over all tasks only."""


class Difference(Config):
    """Hold how one figure differs."""

    label: str = Field(description="kind of task, or All")
    figure: str = Field(description="success, a further score, steps or turn_tokens")
    tasks: int = Field(ge=1, description="different ones")
    base: float = Field(description="mean in the first run")
    other: float = Field(description="mean in the second one")
    difference: float = Field(description="second minus first")
    low: float = Field(description="of the 95 % interval, by bootstrap over tasks")
    high: float
    p: float | None = Field(default=None, description="of the paired permutation test over tasks; for All only")


class Flip(Config):
    """Name a pair of episodes of which one solved the task."""

    task: str
    replica: int
    base: str = Field(description="id of the episode in the first run")
    other: str = Field(description="id of the episode in the second one")


class PartComparison(Config):
    """Hold how one part differs."""

    name: str
    source: str
    pairs: int = Field(ge=1, description="episodes of either run that are compared")
    left_out: int = Field(default=0, ge=0, description="episodes that only one run has")
    figures: tuple[Difference, ...]
    mcnemar: float | None = Field(
        default=None, description="exact p-value of equal success; None where tasks have several samples"
    )
    gained: tuple[Flip, ...] = Field(default=(), description="solved by the second run alone")
    lost: tuple[Flip, ...] = Field(default=(), description="solved by the first run alone")


class Option(Config):
    """Hold what was set, or installed, differently; None where one run says nothing."""

    name: str
    base: Any
    other: Any


class Comparison(Config):
    """Hold how a run differs from another one."""

    base: str = Field(description="name of the first run")
    other: str = Field(description="name of the second one")
    parts: tuple[PartComparison, ...]
    options: tuple[Option, ...] = Field(default=(), description="what differs in configuration, versions and digests")


def compare(
    base: RunResults, other: RunResults, *, common: bool = False, names: tuple[str, str] = ("base", "other")
) -> Comparison:
    """Compare two runs pair by pair: the same sample of the same task.

    Args:
        base: The first run.
        other: The second one; differences are its figures minus the first one's.
        common: Compare what both runs have, where one has more.
        names: What the runs are called.

    Raises:
        ConfigError: The runs cannot be compared; see `paired`.
    """
    return Comparison(
        base=names[0],
        other=names[1],
        parts=tuple(
            _compared(part, [score.label for score in base.scores if score.part == part.part.name])
            for part in paired(base, other, common=common)
        ),
        options=tuple(
            Option(name=name, base=one, other=two) for name, one, two in differences(_set(base), _set(other))
        ),
    )


def _compared(paired_part: PairedPart, labels: Sequence[str]) -> PartComparison:
    """Compare a part; its labels are in the order of its table."""
    part, pairs = paired_part.part, paired_part.pairs
    gained = [(one, two) for one, two in pairs if two.success and not one.success]
    lost = [(one, two) for one, two in pairs if one.success and not two.success]
    single = len({one.task for one, _ in pairs}) == len(pairs)
    return PartComparison(
        name=part.name,
        source=part.source,
        pairs=len(pairs),
        left_out=paired_part.left_out,
        figures=tuple(_figures(pairs, ("success", *part.metrics), labels)),
        mcnemar=mcnemar(len(lost), len(gained)) if single else None,
        gained=tuple(_flips(gained)),
        lost=tuple(_flips(lost)),
    )


def _figures(pairs: Sequence[Pair], scores: Sequence[str], labels: Sequence[str]) -> Iterator[Difference]:
    for label in labels:
        some = pairs if label == ALL else [pair for pair in pairs if pair[0].label == label]
        if some:
            yield from (_difference(label, figure, some, reach=1) for figure in scores)
    yield from (_difference(ALL, figure, pairs, reach=math.inf) for figure in _EFFORT)


def _difference(label: str, figure: str, pairs: Sequence[Pair], *, reach: float) -> Difference:
    """Compare a figure whose differences are at most `reach`."""
    base_N = np.array([_value(one, figure) for one, _ in pairs])
    other_N = np.array([_value(two, figure) for _, two in pairs])
    names, tasks_N = np.unique([one.task for one, _ in pairs], return_inverse=True)
    low, high = bootstrap(other_N - base_N, tasks_N, lowest=-reach, highest=reach)
    by_task_C = np.bincount(tasks_N, other_N - base_N) / np.bincount(tasks_N)
    return Difference(
        label=label,
        figure=figure,
        tasks=len(names),
        base=base_N.mean(),
        other=other_N.mean(),
        difference=(other_N - base_N).mean(),
        low=low,
        high=high,
        p=paired_permutation(by_task_C) if label == ALL else None,
    )


def _value(result: EpisodeResult, figure: str) -> float:
    own = ("success", *_EFFORT)
    return float(getattr(result, figure)) if figure in own else result.metrics.get(figure, 0.0)


def _flips(pairs: Iterable[Pair]) -> Iterator[Flip]:
    for one, two in pairs:
        yield Flip(task=one.task, replica=one.replica, base=one.episode, other=two.episode)


def _set(run: RunResults) -> dict[str, Any]:
    """Return all that may differ between runs and change their scores, parts by their names."""
    parts = {part["name"]: part for part in run.config.get("tasks") or ()}
    # What the parts say themselves says nothing above them.
    shadowed = {name for part in parts.values() for name in part}
    above = {name: value for name, value in shaping(run.config).items() if name not in shadowed}
    made_by = run.made_by.model_dump(mode="json", exclude={"configuration", "begun_with", "policy"})
    return {**above, "tasks": parts, "library": run.library, "fingerprint": run.fingerprint, "made by": made_by}
