"""From results of episodes to scores with intervals: by kind of task, over all, and of several samples."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.evaluate.results import ALFWORLD_LABELS, EpisodeResult
from agentgym_tok.evaluate.stats import wilson
from agentgym_tok.evaluate.stats_bootstrap import bootstrap, clustered_mean
from agentgym_tok.evaluate.stats_passes import pass_all_k, pass_at_k

__all__ = ["ALL", "Macro", "Mean", "Passes", "Score", "macro_of", "passes_of", "scores_of"]

ALL = "All"
"""The label of the line over all kinds of task: each episode counts the same (micro average)."""

Interval: TypeAlias = Literal["wilson", "bootstrap"]


class Mean(Config):
    """Hold the mean of scores from 0 to 1."""

    mean: float = Field(ge=0, le=1, description="failed episodes count as 0")
    low: float = Field(description="of the 95 % interval")
    high: float
    interval: Interval = Field(
        default="wilson", description="wilson for rates of tasks that were played once, else bootstrap over tasks"
    )


class Score(Config):
    """Hold the score of one kind of task, or of all."""

    part: str = Field(default="", description="of the evaluation")
    label: str
    n: int = Field(ge=0, description="episodes")
    tasks: int = Field(default=0, ge=0, description="different tasks")
    success: float = Field(ge=0, le=1, description="rate; failed episodes count as not solved")
    low: float = Field(description="of the 95 % interval")
    high: float
    interval: Interval = Field(default="wilson", description="as of `Mean`")
    steps: float = Field(description="mean turns of an episode")
    turn_tokens: float = Field(description="mean tokens of the policy's turns in an episode")
    failures: int = Field(description="episodes that failed at some boundary")
    metrics: dict[str, Mean] = Field(default_factory=dict, description="the world's further scores")


class Macro(Config):
    """Hold the macro average of a part: the mean of its kinds' means, so that each kind counts the same."""

    part: str = ""
    kinds: int = Field(ge=2, description="of task")
    success: Mean
    metrics: dict[str, Mean] = Field(default_factory=dict)


class Passes(Config):
    """Hold what k samples of a task reach, averaged over tasks."""

    part: str = ""
    k: int = Field(ge=1, description="samples, at most those that every task has")
    at_k: Mean = Field(description="pass@k: at least one of k solves the task")
    all_k: Mean = Field(description="pass^k: all of k do")


def scores_of(
    results: Sequence[EpisodeResult], labels: Iterable[str] = ALFWORLD_LABELS.values(), part: str = ""
) -> list[Score]:
    """Return one score for each label that occurs, in the labels' order, then `All`; no labels, no other line."""
    order = [*labels, "other"]
    parts = [(label, [result for result in results if result.label == label]) for label in order]
    if all(result.label == "other" for result in results):
        parts = []
    return [_score(part, label, some) for label, some in [*parts, (ALL, list(results))] if some]


def macro_of(results: Sequence[EpisodeResult], part: str = "") -> Macro | None:
    """Return the macro average over the kinds of task that occur; None where there is one kind."""
    kinds = {result.label for result in results}
    if len(kinds) < 2:
        return None
    labels = [result.label for result in results]
    values = {name: [result.metrics[name] for result in results] for name in results[0].metrics}
    return Macro(
        part=part,
        kinds=len(kinds),
        success=_mean([result.success for result in results], results, labels),
        metrics={name: _mean(scores, results, labels) for name, scores in values.items()},
    )


def passes_of(results: Sequence[EpisodeResult], part: str = "") -> list[Passes]:
    """Return pass@k and pass^k for each k from 1 to the fewest samples of a task; nothing for single samples."""
    by_task: dict[str, list[bool]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result.success)
    fewest = min(map(len, by_task.values()), default=0)
    solved, drawn = [sum(task) for task in by_task.values()], [len(task) for task in by_task.values()]
    return [
        Passes(
            part=part, k=k, at_k=_of_tasks(pass_at_k(solved, drawn, k)), all_k=_of_tasks(pass_all_k(solved, drawn, k))
        )
        for k in range(1, fewest + 1)
        if fewest > 1
    ]


def _score(part: str, label: str, results: Sequence[EpisodeResult]) -> Score:
    rate = _mean([result.success for result in results], results)
    return Score(
        part=part,
        label=label,
        n=len(results),
        tasks=len({result.task for result in results}),
        success=rate.mean,
        low=rate.low,
        high=rate.high,
        interval=rate.interval,
        steps=fmean(result.steps for result in results),
        turn_tokens=fmean(result.turn_tokens for result in results),
        failures=sum(result.failure is not None for result in results),
        metrics={
            name: _mean([result.metrics.get(name, 0.0) for result in results], results) for name in results[0].metrics
        },
    )


def _mean(scores: Sequence[float], results: Sequence[EpisodeResult], strata: Sequence[str] | None = None) -> Mean:
    """Return the mean of scores; with strata the mean of their means."""
    tasks = [result.task for result in results]
    if strata is None and len(set(tasks)) == len(tasks) and set(scores) <= {0, 1}:
        low, high = wilson(sum(scores), len(scores))
        return Mean(mean=fmean(scores), low=low, high=high)
    low, high = bootstrap(scores, tasks, strata, lowest=0, highest=1)
    return Mean(mean=clustered_mean(scores, strata), low=low, high=high, interval="bootstrap")


def _of_tasks(chances_C: NDArray[np.float64]) -> Mean:
    low, high = bootstrap(chances_C, np.arange(len(chances_C)), lowest=0, highest=1)
    return Mean(mean=float(chances_C.mean()), low=low, high=high, interval="bootstrap")
