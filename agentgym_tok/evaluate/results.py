"""What an evaluation found in one episode."""

import hashlib
from collections.abc import Iterable, Mapping

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.trace import Episode

__all__ = ["ALFWORLD_LABELS", "EpisodeResult", "label_of", "result_of"]

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
    part: str = Field(default="", description="of the evaluation")
    task: str = Field(description="id in its world")
    replica: int = Field(default=0, ge=0, description="which sample of the task")
    seed: int = Field(default=0, ge=0)
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
    opening: str = Field(default="", description="digest of what the world said first; empty where it did not start")


def result_of(
    episode: Episode, labels: Mapping[str, str] = ALFWORLD_LABELS, metrics: Iterable[str] = (), part: str = ""
) -> EpisodeResult:
    """Read the result of an episode.

    Args:
        episode: Any, failed or not.
        labels: Table names by task type; a task's id names its type.
        metrics: Facts of the last turn that are scores.
        part: Of the evaluation.
    """
    turns = [turn for turn in episode.turns if turn.used]
    failure = episode.failure
    return EpisodeResult(
        episode=episode.id,
        part=part,
        task=episode.head.task,
        replica=episode.head.replica,
        seed=episode.head.seed,
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
        opening=_opening(episode),
    )


def label_of(task: str, labels: Mapping[str, str]) -> str:
    """Return the table name of a task whose id has its type as the beginning of a part, else `other`."""
    kinds = [part.split("-")[0] for part in task.split("/")]
    return next((labels[kind] for kind in kinds if kind in labels), "other")


def _opening(episode: Episode) -> str:
    text = episode.turns[0].facts.get("anchor") if episode.turns else None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if isinstance(text, str) else ""
