"""TRL: what a `rollout_func` of `GRPOTrainer` returns, made of rollouts.

Checked against TRL 1.16.0. The trainer takes one sequence for each prompt that it hands out, in their order, and
computes advantages from rewards; so the rollout's return travels with it, and `trace_reward` hands it over. A rollout
of several rows (compaction, subagents, a fresh prompt each step) has no place there and is refused.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.segments import segment
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal
from agentgym_tok.trace import Episode, Row, rows

__all__ = ["Play", "Teach", "rollout_fields", "rollout_func", "trace_reward"]

Play: TypeAlias = Callable[[list[Any], Any], Sequence[Episode]]
"""Plays one rollout for each prompt, in their order: `play(prompts, trainer)`."""

Teach: TypeAlias = Callable[[Episode, list[Row]], Sequence[TeacherContext | TeacherRefusal]]
"""Gives the teachers of a rollout's rows; see `teacher_contexts`."""

_PLACEHOLDER: dict[str, Any] = {
    "prompt_ids": [0],
    "completion_ids": [0],
    "logprobs": [0.0],
    "env_mask": [0],
    "teacher_prompt_ids": [],
}
"""Stands for a rollout in which nothing is trained, since every prompt needs its sequence; no mask counts it."""


def rollout_func(play: Play, teach: Teach | None = None) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
    """Return a `rollout_func` for `GRPOTrainer`.

    Args:
        play: Plays the rollouts; the trainer hands each prompt out as often as the group is large, and a column of task
            ids is a fine `prompt`.
        teach: Gives each row its teacher, for `SDARTrainer`.
    """

    def run(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        episodes = play(prompts, trainer)
        if len(episodes) != len(prompts):
            got, expected = f"{len(episodes)} rollouts", f"{len(prompts)}, one for each prompt"
            raise ConfigError("rollouts and prompts do not pair up", where="play", got=got, expected=expected)
        return rollout_fields(episodes, teach)

    return run


def rollout_fields(episodes: Sequence[Episode], teach: Teach | None = None) -> dict[str, list[Any]]:
    """Return what a `rollout_func` returns.

    Args:
        episodes: One rollout for each prompt.
        teach: Gives each row its teacher.

    Returns:
        Lists with one entry for each rollout: `prompt_ids`, `completion_ids`, `logprobs` (nats, 0 where nothing is
        trained) and `env_mask` (1 where trained), which the trainer reads; `rollout_return` and `rollout_id` for reward
        functions, where the return is None if the rollout failed and it was not the policy's fault; and, with `teach`,
        `teacher_prompt_ids`, empty where there is no teacher.

    Raises:
        ConfigError: A rollout has several rows.
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    made = [_entry(episode, teach) for episode in episodes]
    return {name: [entry[name] for entry in made] for name in made[0]} if made else {}


def trace_reward(*, rollout_return: Sequence[float | None], **others: Any) -> list[float | None]:
    """Return the rollouts' returns: a reward function for `GRPOTrainer`, which leaves None out of its statistics."""
    del others
    return list(rollout_return)


def _entry(episode: Episode, teach: Teach | None) -> dict[str, Any]:
    made = rows(episode)
    if len(made) > 1:
        raise ConfigError(
            "TRL takes one sequence for each prompt",
            where=f"rollout {episode.id}",
            got=f"{len(made)} rows",
            fix="play without compaction, subagents and fresh prompts, or use another trainer",
        )
    entry = dict(_PLACEHOLDER)
    for row in made:
        cut = segment(row)
        entry |= {
            "prompt_ids": cut.prompt_P.tolist(),
            "completion_ids": cut.response_R.tolist(),
            "logprobs": cut.logprobs_R.tolist(),
            "env_mask": cut.mask_R.astype(int).tolist(),
            "teacher_prompt_ids": _teacher(row, teach(episode, made)) if teach else [],
        }
    if teach is None:
        del entry["teacher_prompt_ids"]
    blameless = episode.failure is not None and episode.failure.boundary != "policy"
    return {**entry, "rollout_return": None if blameless else episode.return_, "rollout_id": episode.id}


def _teacher(row: Row, contexts: Sequence[TeacherContext | TeacherRefusal]) -> list[int]:
    """Return what the teacher reads before the first trained token: all behind it is the student's completion."""
    (context,) = contexts
    if isinstance(context, TeacherRefusal):
        return []
    start = context.predictors[0] + 1
    if context.ids_S[start:].tobytes() != row.ids_T[row.mask_T.argmax() :].tobytes():
        raise ConfigError("the teacher is of another row", where=f"rollout {row.rollout_id}", fix="teach each row")
    return context.ids_S[:start].tolist()  # type: ignore[no-any-return]
