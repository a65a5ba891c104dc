"""What all trainers' formats share: a prompt, and a response in which some tokens are trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError, InvalidIds, InvalidLogprobs
from agentgym_tok.tokens import Ids, as_ids, as_logprobs
from agentgym_tok.trace import Row

__all__ = ["Segment", "check_row", "segment", "trajectories"]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Hold a row that is cut before its first trained token: P ids and R ids.

    Args:
        prompt_P: int32 [P], at least one.
        response_R: int32 [R], what the policy said, and what it was told in between.
        mask_R: bool [R]; the first is true.
        logprobs_R: float32 [R], nats, 0 where nothing is trained.
        advantage_R: float32 [R], 0 where nothing is trained; None where the row has none.
    """

    prompt_P: Ids
    response_R: Ids
    mask_R: NDArray[np.bool_]
    logprobs_R: NDArray[np.float32]
    advantage_R: NDArray[np.float32] | None


def check_row(row: Row) -> None:
    """Refuse a row that no policy gradient may train.

    Raises:
        InvalidIds: Its parts have different lengths, nothing is trained, or nothing stands before what is trained.
        InvalidLogprobs: A trained token has no possible log-probability; or a turn of several tokens has 0 throughout,
            which is how rows have demonstrations and turns without log-probabilities (`rows(objective="sft")`).
        ConfigError: An advantage is not finite.
    """
    where = f"row of rollout {row.rollout_id}"
    as_ids(row.ids_T, where=where)
    parts = [row.mask_T, row.logprobs_T, row.turn_T, row.temperature_T]
    parts += [] if row.advantage_T is None else [row.advantage_T]
    shapes = {np.shape(part) for part in parts}
    if shapes != {row.ids_T.shape}:
        raise InvalidIds("a row's parts have different lengths", where=where, got=shapes, expected=row.ids_T.shape)
    trained = np.flatnonzero(row.mask_T)
    if not len(trained) or trained[0] == 0:
        got = "no trained token" if not len(trained) else "a trained token with nothing before it"
        raise InvalidIds("the row cannot be trained", where=where, got=got, expected="a prompt, then trained tokens")
    logprobs_K = as_logprobs(row.logprobs_T[trained], len(trained), where=f"{where}: logprobs_T")
    turn_K = row.turn_T[trained]
    for turn in np.unique(turn_K[logprobs_K == 0]).tolist():
        own_K = logprobs_K[turn_K == turn]
        if len(own_K) > 1 and not own_K.any():
            raise InvalidLogprobs(
                "a turn has no log-probabilities",
                where=f"{where}, turn {turn}",
                got=f"0 for all {len(own_K)} tokens",
                expected="those of the engine that drew them",
                fix='make the rows with rows(episode, objective="rl"), which trains sampled turns alone',
            )
    if row.advantage_T is not None and not np.isfinite(row.advantage_T[trained]).all():
        raise ConfigError("an advantage is not finite", where=where)


def segment(row: Row) -> Segment:
    """Cut a row before its first trained token; the parts together are the row.

    Raises:
        InvalidIds, InvalidLogprobs, ConfigError: See `check_row`.
    """
    check_row(row)
    start = int(np.argmax(row.mask_T))
    mask_R = row.mask_T[start:]
    return Segment(
        prompt_P=row.ids_T[:start],
        response_R=row.ids_T[start:],
        mask_R=mask_R,
        logprobs_R=np.where(mask_R, row.logprobs_T[start:], np.float32(0)),
        advantage_R=None if row.advantage_T is None else np.where(mask_R, row.advantage_T[start:], np.float32(0)),
    )


def trajectories(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each root rollout and its subagents, in their order.

    Raises:
        ConfigError: Rows of one rollout stand apart from each other.
    """
    found = [(name, list(own)) for name, own in groupby(rows, key=lambda row: row.parent_rollout or row.rollout_id)]
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            "rows of one rollout stand apart", where=f"rollout {twice}", fix="pass the rows as rows(episode) gives them"
        )
    return [own for _, own in found]
