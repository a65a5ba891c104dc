"""What an evaluation found: one result for each episode, one score for each kind of task."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.evaluate.stats import wilson
from agentgym_tok.trace import Episode

__all__ = ["ALFWORLD_LABELS", "EpisodeResult", "Mean", "Score", "result_of", "scores_of"]

ALFWORLD_LABELS: Mapping[str, str] = {
    "pick_and_place_simple": "Pick",
    "look_at_obj_in_light": "Look",
    "pick_clean_then_place_in_recep": "Clean",
    "pick_heat_then_place_in_recep": "Heat",
    "pick_cool_then_place_in_recep": "Cool",
    "pick_two_obj_and_place": "Pick2",
}
"""The names that papers give ALFWorld's task types, in their order."""


class EpisodeResult(Config):
    """Hold the result of one episode."""

    episode: str = Field(description="id in the trace")
    task: str = Field(description="id in its world")
    label: str = Field(description="kind of task, as the table names it")
    success: bool
    reward: float = Field(description="raw return")
    steps: int = Field(ge=0, description="turns")
    turn_tokens: int = Field(ge=0, description="tokens of the policy's turns")
    context_tokens: int = Field(ge=0, description="longest context that the policy saw")
    invalid_actions: int = Field(ge=0, description="commands that the world refused")
    format_errors: int = Field(ge=0, description="turns that broke the protocol's form")
    truncation: str | None = Field(default=None, description="the limit that ended it")
    failure: str | None = Field(default=None, description="boundary and error, where it failed")
    metrics: dict[str, float] = Field(default_factory=dict, description="the world's further scores, 0 to 1")


class Mean(Config):
    """Hold the mean of a further score."""

    mean: float = Field(ge=0, le=1, description="failed episodes count as 0")
    low: float = Field(description="95 % Wilson interval")
    high: float


class Score(Config):
    """Hold the score of one kind of task, or of all."""

    label: str
    n: int = Field(ge=0)
    success: float = Field(ge=0, le=1, description="rate; failed episodes count as not solved")
    low: float = Field(description="95 % Wilson interval")
    high: float
    steps: float = Field(description="mean turns of an episode")
    turn_tokens: float = Field(description="mean tokens of the policy's turns in an episode")
    failures: int = Field(description="episodes that failed at some boundary")
    metrics: dict[str, Mean] = Field(default_factory=dict, description="the world's further scores")


def result_of(
    episode: Episode, labels: Mapping[str, str] = ALFWORLD_LABELS, metrics: Iterable[str] = ()
) -> EpisodeResult:
    """Read the result of an episode.

    Args:
        episode: Any, failed or not.
        labels: Table names by task type; a task's id names its type.
        metrics: Facts of the last turn that are scores.
    """
    turns = [turn for turn in episode.turns if turn.used]
    failure = episode.failure
    return EpisodeResult(
        episode=episode.id,
        task=episode.head.task,
        label=label_of(episode.head.task, labels),
        success=bool(episode.success),
        reward=episode.return_,
        steps=len(turns),
        turn_tokens=sum(len(turn.completion.ids_T) for turn in turns),
        context_tokens=max((len(turn.context) for turn in turns), default=0),
        invalid_actions=sum(turn.valid_action is False for turn in turns),
        format_errors=sum(turn.format_ok is False for turn in turns),
        truncation=turns[-1].truncation if turns else None,
        failure=None if failure is None else f"{failure.boundary}: {failure.kind}: {failure.message}",
        metrics={name: float(turns[-1].facts.get(name, 0.0)) if turns else 0.0 for name in metrics},
    )


def label_of(task: str, labels: Mapping[str, str]) -> str:
    """Return the table name of a task whose id has its type as the beginning of a part, else `other`."""
    kinds = [part.split("-")[0] for part in task.split("/")]
    return next((labels[kind] for kind in kinds if kind in labels), "other")


def scores_of(results: Sequence[EpisodeResult], labels: Iterable[str] = ALFWORLD_LABELS.values()) -> list[Score]:
    """Return one score for each label that occurs, in the labels' order, then `All`; no labels, no other line."""
    order = [*labels, "other"]
    parts = [(label, [result for result in results if result.label == label]) for label in order]
    if all(result.label == "other" for result in results):
        parts = []
    return [_score(label, part) for label, part in [*parts, ("All", list(results))] if part]


def _score(label: str, results: Sequence[EpisodeResult]) -> Score:
    solved = sum(result.success for result in results)
    low, high = wilson(solved, len(results))
    return Score(
        label=label,
        n=len(results),
        success=solved / len(results),
        low=low,
        high=high,
        steps=fmean(result.steps for result in results),
        turn_tokens=fmean(result.turn_tokens for result in results),
        failures=sum(result.failure is not None for result in results),
        metrics={name: _mean([result.metrics.get(name, 0.0) for result in results]) for name in results[0].metrics},
    )


def _mean(scores: Sequence[float]) -> Mean:
    low, high = wilson(sum(scores), len(scores))
    return Mean(mean=fmean(scores), low=low, high=high)
