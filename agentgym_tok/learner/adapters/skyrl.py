"""SkyRL: `GeneratorOutput`, with the fields of step-wise training, since a rollout may have several rows.

Checked against skyrl 0.3.0. The trainer computes advantages itself: by the reward of each trajectory's last row, given
to all its rows. So every row has the root's return, and advantages on rows are not looked at. Experts are left out:
rows say 0 where they do not know them, and the trainer would replay that.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.packages import imported
from agentgym_tok.learner.adapters.segments import segment, trajectories
from agentgym_tok.trace import Row

__all__ = ["generator_fields", "generator_output"]


def generator_fields(rows: Sequence[Row], trajectory_id: Callable[..., Any] = dict) -> dict[str, Any]:
    """Return what a generator's output is made of.

    Args:
        rows: Whole rollouts, in the order of the prompts that they answer.
        trajectory_id: Makes the id of a trajectory of `instance_id` (the group) and `repetition_id` (the place in it).

    Returns:
        Lists with one entry for each row: `prompt_token_ids`, `response_ids`, `loss_masks` (0 or 1),
        `rollout_logprobs` (nats), `rewards` (the root's return), `stop_reasons` (`length` where a limit ended it),
        `trajectory_ids` and `is_last_step`; and None for what rows do not have.

    Raises:
        ConfigError: There are no rows, rows of one rollout stand apart, or those of the root are missing.
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    if not rows:
        raise ConfigError("there are no rows", where="generator_fields", got="none", expected="at least one")
    made: dict[str, list[Any]] = {name: [] for name in _FILLED}
    members: dict[str, int] = {}
    for own in trajectories(rows):
        root = next((row for row in own if row.parent_rollout is None), None)
        if root is None:
            where = f"rollout {own[0].parent_rollout}"
            raise ConfigError("a rollout's own rows are missing", where=where, fix="pass all of rows(episode)")
        place = members.get(root.group_id, 0)
        members[root.group_id] = place + 1
        for index, row in enumerate(own, 1):
            cut = segment(row)
            made["prompt_token_ids"].append(cut.prompt_P.tolist())
            made["response_ids"].append(cut.response_R.tolist())
            made["loss_masks"].append(cut.mask_R.astype(int).tolist())
            made["rollout_logprobs"].append(cut.logprobs_R.tolist())
            made["rewards"].append(root.reward)
            made["stop_reasons"].append("length" if row.status == "truncated" else "stop")
            made["trajectory_ids"].append(trajectory_id(instance_id=root.group_id, repetition_id=place))
            made["is_last_step"].append(index == len(own))
    return {**made, **dict.fromkeys(_EMPTY)}


def generator_output(rows: Sequence[Row]) -> dict[str, Any]:
    """Return rows as SkyRL's `GeneratorOutput`, with its own trajectory ids.

    Args:
        rows: See `generator_fields`. Set `generator.step_wise_trajectories` where a rollout may have several.

    Raises:
        MissingExtra: skyrl is not installed.
        InvalidIds, InvalidLogprobs, ConfigError: See `generator_fields`.
    """
    base = imported("skyrl.train.generators.base", 'pip install "skyrl[skyrl-train]"')
    return generator_fields(rows, base.TrajectoryID)


_FILLED = (
    "prompt_token_ids",
    "response_ids",
    "rewards",
    "loss_masks",
    "stop_reasons",
    "rollout_logprobs",
    "trajectory_ids",
    "is_last_step",
)
_EMPTY = (
    "rollout_metrics",
    "trajectory_generation_times",
    "rollout_expert_indices",
    "env_metrics",
    "pixel_values",
    "image_grid_thw",
)
