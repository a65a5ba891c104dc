"""From training rows to the advantage of every trained token."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.learner.advantages import (
    Floats,
    Lone,
    Scale,
    discounted_returns,
    group_advantages,
    group_index,
    rloo,
    whiten,
)
from agentgym_tok.learner.shaping import Overlong, overlong_penalty
from agentgym_tok.trace import Row, assign_advantages

__all__ = ["ADVANTAGES", "AdvantageConfig", "Estimator", "Statistics", "estimate_advantages", "with_advantages"]

Estimator: TypeAlias = Literal["group", "rloo", "gigpo", "reinforce_pp", "reinforce_pp_baseline"]
Statistics: TypeAlias = Literal["rollout", "step_row"]

_BROKEN = -1
"""In `Row.valid_N`: a turn whose form its world's protocol could not read."""


class AdvantageConfig(Config):
    """Name an estimator and its few options; `ADVANTAGES` has those that are published.

    Args:
        estimator: `group` (GRPO; Dr.GRPO with scale none), `rloo`, `gigpo` (that of the group, plus one among the steps
            of a group that began at the same anchor), `reinforce_pp` (rewards to come, whitened over the batch; without
            a discount between tokens, and without KL among the rewards) or `reinforce_pp_baseline` (less the group's
            mean, whitened).
        statistics: What a group's mean and deviation count: each rollout once, or each trained step of each rollout
            (verl-agent's default), where long rollouts weigh more and a penalty falls on its step alone.
        scale: What `group` and `gigpo` divide by.
        lone: The advantage of a rollout that is alone in its group: 0, or its return as in verl.
        invalid_penalty: Taken off for each trained turn of broken form, before anything is compared: 0.1 in SDAR's
            scripts for ALFWorld and WebShop, 0.01 for Search-QA.
        overlong: DAPO's penalty for length, likewise.
        gamma: Discount of GiGPO's step returns, from turn to turn.
        step_weight: Weight of GiGPO's step advantage.
    """

    estimator: Estimator = "group"
    statistics: Statistics = "rollout"
    scale: Scale = "group"
    lone: Lone = "zero"
    invalid_penalty: float = Field(default=0.0, ge=0)
    overlong: Overlong | None = None
    gamma: float = Field(default=0.95, ge=0, le=1)
    step_weight: float = Field(default=1.0, ge=0)


ADVANTAGES: Mapping[str, AdvantageConfig] = {
    "grpo": AdvantageConfig(),
    "dr_grpo": AdvantageConfig(scale="none"),
    "rloo": AdvantageConfig(estimator="rloo"),
    "reinforce_pp": AdvantageConfig(estimator="reinforce_pp"),
    "reinforce_pp_baseline": AdvantageConfig(estimator="reinforce_pp_baseline"),
    "gigpo": AdvantageConfig(estimator="gigpo", statistics="step_row", scale="none"),
    "verl_agent_grpo": AdvantageConfig(statistics="step_row", lone="return", invalid_penalty=0.1),
}
"""Published estimators. DAPO's is `grpo` with `overlong`, on the groups that `informative_groups` names."""


@dataclass(slots=True)
class _Rollout:
    """Hold what all rows of a root rollout say together."""

    row: Row
    tokens_N: NDArray[np.int64]
    children: dict[str, int] = field(default_factory=dict)
    """Trained tokens of each subagent."""

    @property
    def steps(self) -> NDArray[np.int64]:
        """Turns that are trained."""
        return np.flatnonzero(self.tokens_N)

    def penalties(self, penalty: float) -> Floats:
        """Return what each trained turn of broken form costs, [N]."""
        is_broken_N = (self.row.valid_N == _BROKEN) & (self.tokens_N > 0)
        cost_N: Floats = is_broken_N.astype(np.float64) * penalty
        return cost_N


def with_advantages(made: Iterable[Row], config: AdvantageConfig) -> list[Row]:
    """Give every trained token its advantage.

    Args:
        made: All rows of whole groups: an estimate knows only the rollouts that it sees.
        config: The estimator.

    Returns:
        The rows, in their order, each with `advantage_T`.
    """
    made = list(made)
    return assign_advantages(made, estimate_advantages(made, config))


def estimate_advantages(made: Sequence[Row], config: AdvantageConfig) -> dict[str, float | Floats]:
    """Return the advantages of rollouts, as `agentgym_tok.trace.assign_advantages` takes them.

    Args:
        made: All rows of whole groups, in any order. A rollout none of whose tokens is trained has no rows, and is not
            compared with.
        config: The estimator.

    Returns:
        By rollout: a number, or float64 [N], one for each turn of the episode; then its subagents are named too, and
        get what the root would have without penalties on single steps.

    Source: that of each estimator stands in `advantages`. GiGPO: Feng et al. 2025 (arXiv 2505.10978) and verl-agent;
    a step that is alone at its anchor has step advantage 0.
    """
    rollouts = _rollouts(made)
    if not rollouts:
        return {}
    names = list(rollouts)
    group_B = group_index([rollouts[name].row.group_id for name in names])
    if config.estimator.startswith("reinforce"):
        return _whitened(rollouts, group_B, config)
    if config.statistics == "rollout":
        returns_B = _returns(rollouts, config)
        whole = dict(zip(names, _compare(returns_B, group_B, config).tolist(), strict=True))
        if config.estimator != "gigpo":
            return dict(whole)
        base: dict[str, Floats] = {name: np.full(len(rollouts[name].tokens_N), whole[name]) for name in names}
    else:
        base, whole = _by_step(rollouts, group_B, config)
    if config.estimator == "gigpo":
        for name, step_N in _step_advantages(rollouts, config).items():
            base[name] = base[name] + config.step_weight * step_N
    return {**base, **{child: whole[name] for name in names for child in rollouts[name].children}}


def _rollouts(made: Sequence[Row]) -> dict[str, _Rollout]:
    """Join the rows of each root rollout."""
    rollouts: dict[str, _Rollout] = {}
    for row in made:
        if row.parent_rollout is None:
            turns = len(row.turn_rewards_N)
            known = rollouts.setdefault(row.rollout_id, _Rollout(row, np.zeros(turns, np.int64)))
            known.tokens_N = known.tokens_N + np.bincount(row.turn_T[row.mask_T], minlength=turns)
    for row in made:
        # A root without rows of its own gives no advantage to inherit; assign_advantages says so.
        if row.parent_rollout in rollouts:
            children = rollouts[row.parent_rollout].children
            children[row.rollout_id] = children.get(row.rollout_id, 0) + int(row.mask_T.sum())
    return rollouts


def _compare(values_B: Floats, group_B: NDArray[np.int64], config: AdvantageConfig) -> Floats:
    if config.estimator == "rloo":
        return rloo(values_B, group_B, lone=config.lone)
    return group_advantages(values_B, group_B, scale=config.scale, lone=config.lone)


def _overlong(rollouts: Mapping[str, _Rollout], config: AdvantageConfig) -> Floats:
    if config.overlong is None:
        return np.zeros(len(rollouts))
    return overlong_penalty([rollout.tokens_N.sum() for rollout in rollouts.values()], config.overlong)


def _returns(rollouts: Mapping[str, _Rollout], config: AdvantageConfig) -> Floats:
    """Return each rollout's return, less all its penalties."""
    penalties = [rollout.penalties(config.invalid_penalty).sum() for rollout in rollouts.values()]
    raw = [rollout.row.reward for rollout in rollouts.values()]
    returns_B: Floats = np.array(raw, np.float64) - np.array(penalties) + _overlong(rollouts, config)
    return returns_B


def _by_step(
    rollouts: Mapping[str, _Rollout], group_B: NDArray[np.int64], config: AdvantageConfig
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Compare all trained steps of a group: each has the whole return, less its own penalty."""
    length_B = _overlong(rollouts, config)
    values = [
        rollout.row.reward + length_B[place] - rollout.penalties(config.invalid_penalty)[rollout.steps]
        for place, rollout in enumerate(rollouts.values())
    ]
    sizes = [len(part) for part in values]
    compared_S = _compare(np.concatenate(values), np.repeat(group_B, sizes), config)
    by_turn, whole = {}, {}
    for part_S, (name, rollout) in zip(_split(compared_S, sizes), rollouts.items(), strict=True):
        by_turn[name] = _spread_out(part_S, rollout)
        whole[name] = float(part_S.max())  # of a step without a penalty, if there is one
    return by_turn, whole


def _step_advantages(rollouts: Mapping[str, _Rollout], config: AdvantageConfig) -> dict[str, Floats]:
    """Compare the steps of a group that began at the same anchor, by what was still to come.

    A penalty falls on its own step's return and on no earlier one's, as in verl-agent.
    """
    values: list[Floats] = []
    keys: dict[tuple[str, ...], int] = {}
    group: list[int] = []
    for name, rollout in rollouts.items():
        row, steps = rollout.row, rollout.steps
        to_come_N = discounted_returns(row.turn_rewards_N, np.ones(len(row.turn_rewards_N), bool), gamma=config.gamma)
        values.append((to_come_N - rollout.penalties(config.invalid_penalty))[steps])
        for step in steps:
            anchor = row.anchor_N[step]
            # A step before which the world said nothing is like no other.
            key = (row.group_id, anchor) if anchor else (row.group_id, name, str(step))
            group.append(keys.setdefault(key, len(keys)))
    compared_S = group_advantages(np.concatenate(values), group, scale=config.scale)
    parts = _split(compared_S, [len(part) for part in values])
    return {name: _spread_out(part_S, rollout) for part_S, (name, rollout) in zip(parts, rollouts.items(), strict=True)}


def _whitened(
    rollouts: Mapping[str, _Rollout], group_B: NDArray[np.int64], config: AdvantageConfig
) -> dict[str, float | Floats]:
    """Whiten what is to come (or the return less the group's mean) over all trained tokens of the batch."""
    returns_B = _returns(rollouts, config)
    if config.estimator == "reinforce_pp_baseline":
        returns_B = group_advantages(returns_B, group_B, scale="none", lone=config.lone)
    values: list[Floats] = []
    counts: list[NDArray[np.int64]] = []
    for place, rollout in enumerate(rollouts.values()):
        to_come_N = np.full(len(rollout.tokens_N), returns_B[place])
        if config.estimator == "reinforce_pp":
            # What had come before a turn is no longer to come.
            earned_N = rollout.row.turn_rewards_N - rollout.penalties(config.invalid_penalty)
            to_come_N[1:] -= np.cumsum(earned_N)[:-1]
        values += [to_come_N, returns_B[place : place + 1]]
        counts += [rollout.tokens_N, np.array([sum(rollout.children.values())])]
    parts = _split(whiten(np.concatenate(values), np.concatenate(counts)), [len(part) for part in values])
    found: dict[str, float | Floats] = {}
    for place, (name, rollout) in enumerate(rollouts.items()):
        found[name] = parts[2 * place]
        found |= dict.fromkeys(rollout.children, float(parts[2 * place + 1][0]))
    return found


def _split(flat_S: Floats, sizes: Sequence[int]) -> list[Floats]:
    return np.split(flat_S, np.cumsum(sizes))[:-1]


def _spread_out(part_S: Floats, rollout: _Rollout) -> Floats:
    """Put the values of trained steps at their turns; others have 0."""
    values_N = np.zeros(len(rollout.tokens_N))
    values_N[rollout.steps] = part_S
    return values_N
