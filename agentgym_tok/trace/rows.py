"""From turns to training rows: every trained token once, under the very context that produced it."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError
from agentgym_tok.tokens import Ids
from agentgym_tok.trace.records import Episode, Row, RowStatus, Turn
from agentgym_tok.types import Experts, Message, Support

__all__ = ["MaskReason", "Merge", "Objective", "Weighting", "family", "mask_reason", "rows"]

Merge: TypeAlias = Literal["prefix", "turn"]
Weighting: TypeAlias = Literal["rollout", "row", "token"]
Objective: TypeAlias = Literal["rl", "sft"]
MaskReason: TypeAlias = Literal[
    "unused_attempt",
    "failed_turn",
    "aborted",
    "auxiliary",
    "forced",
    "inexact_ids",
    "demonstration",
    "no_logprobs",
    "sentinel_logprobs",
    "no_sampling",
    "redacted",
]

_Scalar = TypeVar("_Scalar", bound=np.generic)

VALID, REFUSED, BROKEN, UNKNOWN = 1, 0, -1, -2


def mask_reason(turn: Turn, objective: Objective) -> MaskReason | None:
    """Say why a turn's completion is not trained; None where it is.

    Args:
        turn: The turn.
        objective: `rl` trains what the policy sampled; `sft` also demonstrations, and needs no log-probabilities.
    """
    completion = turn.completion
    sampled = completion.origin == "sampled"
    rl = objective == "rl"
    checks: tuple[tuple[MaskReason, bool], ...] = (
        ("unused_attempt", not turn.used),
        ("failed_turn", turn.failure is not None),
        ("aborted", completion.finish_reason == "abort"),
        ("auxiliary", turn.edge.kind == "auxiliary"),
        ("forced", completion.origin == "forced"),
        ("inexact_ids", sampled and not completion.ids_exact),
        ("demonstration", rl and completion.origin == "demonstration"),
        ("no_logprobs", rl and completion.logprobs_T is None),
        ("sentinel_logprobs", rl and completion.logprobs == "sentinel"),
        ("no_sampling", rl and completion.sampling is None),
        ("redacted", "ids" in turn.redacted),
    )
    return next((reason for reason, holds in checks if holds), None)


def rows(
    episode: Episode,
    *,
    merge: Merge = "prefix",
    weighting: Weighting = "rollout",
    objective: Objective = "rl",
) -> list[Row]:
    """Return the training rows of a rollout and its subagents.

    Each trained token has mask 1 in exactly one row, and there the ids before it are those the engine saw. What is not
    trained has a reason that `account` counts.

    Args:
        episode: A rollout; its children's rows follow its own.
        merge: `prefix` goes on with a row while the next context begins with all its ids, and starts another where it
            does not; earlier turns then stand in it with mask 0. `turn` makes one row of each turn.
        weighting: `rollout`: the weights of all these rows sum to 1, in proportion to their trained tokens. `row`:
            each is 1. `token`: each is its number of trained tokens.
        objective: `rl` or `sft`; see `mask_reason`.

    Raises:
        ConfigError: An option has no such value.
    """
    for name, value, known in (
        ("merge", merge, ("prefix", "turn")),
        ("weighting", weighting, ("rollout", "row", "token")),
        ("objective", objective, ("rl", "sft")),
    ):
        if value not in known:
            raise ConfigError(f"unknown {name}", where="rows", got=repr(value), expected=" or ".join(known))
    walks = [_Walk(member, episode) for member in family(episode)]
    covers = [(walk, cover) for walk in walks for cover in _cover(walk.episode, merge, objective)]
    tokens = [sum(len(turn.completion.ids_T) for turn in cover) for _, cover in covers]
    total = sum(tokens)
    weights = {"rollout": [n / total for n in tokens], "row": [1.0] * len(tokens), "token": [float(n) for n in tokens]}
    return [walk.row(cover, weight) for (walk, cover), weight in zip(covers, weights[weighting], strict=True)]


def family(episode: Episode) -> list[Episode]:
    """Return a rollout and all its subagents, parents first."""
    members = [episode]
    for member in members:
        members.extend(member.children)
    return members


def _cover(episode: Episode, merge: Merge, objective: Objective) -> list[list[Turn]]:
    """Group the trained turns so that each turn's ids, context included, begin the next one's context."""
    covers: list[list[Turn]] = []
    for turn in episode.turns:
        if not len(turn.completion.ids_T) or mask_reason(turn, objective) is not None:
            continue
        grown = [cover for cover in covers if _begins(cover[-1], turn.context.ids)] if merge == "prefix" else []
        if grown:
            max(grown, key=lambda cover: len(cover[-1].context)).append(turn)
        else:
            covers.append([turn])
    return covers


def _begins(turn: Turn, ids_T: Ids) -> bool:
    """Say whether ids begin with a turn's context and completion."""
    seen, answer_T = len(turn.context), turn.completion.ids_T
    end = seen + len(answer_T)
    # The answer first: it is short, and it differs where contexts fork.
    return (
        len(ids_T) >= end
        and np.array_equal(ids_T[seen:end], answer_T)
        and np.array_equal(ids_T[:seen], turn.context.ids)
    )


class _Walk:
    """Make the rows of one episode; what they have in common is computed once."""

    def __init__(self, episode: Episode, root: Episode) -> None:
        steps = episode.steps
        self.episode = episode
        self.group_id = root.group_id
        self.parent_rollout = episode.head.parent if episode is root else root.id
        self.turn_rewards_N = _frozen(np.array([turn.reward if turn.used else 0.0 for turn in steps], np.float64))
        self.anchor_N = tuple(_anchor(turn) for turn in steps)
        self.valid_N = _frozen(np.array([_valid(turn) for turn in steps], dtype=np.int8))

    def row(self, cover: Sequence[Turn], weight: float) -> Row:
        last = cover[-1]
        ids_T = np.concatenate((last.context.ids, last.completion.ids_T))
        length = len(ids_T)
        mask_T = np.zeros(length, dtype=bool)
        logprobs_T = np.zeros(length, dtype=np.float32)
        version_T = np.full(length, -1, dtype=np.int32)
        turn_T = np.full(length, -1, dtype=np.int32)
        temperature_T = np.ones(length, dtype=np.float32)
        versions: dict[str, int] = {}
        for turn in cover:
            completion, start = turn.completion, len(turn.context)
            place = slice(start, start + len(completion.ids_T))
            mask_T[place] = True
            turn_T[place] = turn.index
            if completion.logprobs_T is not None:
                logprobs_T[place] = completion.logprobs_T
            if completion.sampling is not None:
                temperature_T[place] = completion.sampling.temperature
            for version, first, end in completion.weight_versions:
                version_T[start + first : start + end] = versions.setdefault(version, len(versions))
        return Row(
            ids_T=_frozen(ids_T),
            mask_T=_frozen(mask_T),
            logprobs_T=_frozen(logprobs_T),
            version_T=_frozen(version_T),
            turn_T=_frozen(turn_T),
            temperature_T=_frozen(temperature_T),
            advantage_T=None,
            reward=self.episode.return_,
            turn_rewards_N=self.turn_rewards_N,
            anchor_N=self.anchor_N,
            valid_N=self.valid_N,
            rollout_id=self.episode.id,
            group_id=self.group_id,
            task=self.episode.head.task,
            parent_rollout=self.parent_rollout,
            weight=weight,
            status=_status(self.episode),
            versions=tuple(versions),
            experts_T_L_K=_experts(cover, length),
            support=_support(cover, length),
        )


def _experts(cover: Sequence[Turn], length: int) -> Experts | None:
    """Lay each turn's experts at its tokens; None unless all turns have them, and of one shape."""
    said = [(len(turn.context), turn.completion.experts_T_L_K) for turn in cover]
    shapes = {None if experts is None else experts.shape[1:] for _, experts in said}
    shape = shapes.pop()
    if shape is None or shapes:
        return None
    experts_T_L_K = np.zeros((length, *shape), dtype=np.uint16)
    for start, experts in said:
        if experts is not None:
            experts_T_L_K[start : start + len(experts)] = experts
    return _frozen(experts_T_L_K)


def _support(cover: Sequence[Turn], length: int) -> Support | None:
    """Lay each turn's sampling support at its tokens; None unless all turns have one."""
    said = [(len(turn.context), turn.completion.support) for turn in cover]
    supports = [support for _, support in said if support is not None]
    if len(supports) < len(said):
        return None
    counts_T = np.zeros(length, dtype=np.int32)
    for (start, _), support in zip(said, supports, strict=True):
        counts_T[start : start + len(support.counts_T)] = support.counts_T
    return Support(counts_T, np.concatenate([support.ids_S for support in supports]))


def _frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    array.flags.writeable = False
    return array


def _valid(turn: Turn) -> int:
    if turn.format_ok is False:
        return BROKEN
    if turn.valid_action is None:
        return UNKNOWN
    return VALID if turn.valid_action else REFUSED


def _anchor(turn: Turn) -> str:
    anchor = turn.facts.get("anchor")
    if isinstance(anchor, str):
        return anchor
    return next(filter(None, map(_world_text, reversed(turn.messages))), "")


def _world_text(message: Message) -> str:
    if message.trusted:
        return "".join(message.content[start:end] for start, end in message.untrusted)
    return message.content


def _status(episode: Episode) -> RowStatus:
    if episode.status == "done" and any(turn.truncated for turn in episode.turns if turn.used):
        return "truncated"
    return episode.status
