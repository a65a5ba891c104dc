"""verl: the tensors of a `DataProto`, and `AgentLoopOutput`.

Checked against verl 0.9.1. Prompts are padded on the left, responses on the right. `old_log_probs` are the trainer's
business: what the engine said are `rollout_log_probs`. Weights of rows have no field there: verl's statistics count
rows, so that a rollout of several rows needs advantages of ours. Experts are left out: rows say 0 where they do not
know them, and the trainer would replay that.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.packages import imported
from agentgym_tok.learner.adapters.segments import segment
from agentgym_tok.trace import Row

__all__ = ["agent_loop_fields", "agent_loop_output", "data_proto", "data_proto_fields"]

_Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
_INSTALL = "pip install verl tensordict"


def data_proto_fields(
    rows: Sequence[Row],
    *,
    prompt_length: int | None = None,
    response_length: int | None = None,
    pad_id: int = 0,
    data_source: str = "agentgym_tok",
) -> tuple[_Arrays, _Arrays, dict[str, Any]]:
    """Return what a `DataProto` is made of.

    Args:
        rows: B rows.
        prompt_length: P; None takes the longest.
        response_length: R; None takes the longest.
        pad_id: Stands where nothing does; no mask counts it, whatever it is elsewhere.
        data_source: What the trainer's figures call the world.

    Returns:
        Tensors, int64: `prompts` [B, P], `responses` and `response_mask` [B, R], `input_ids`, `attention_mask` and
        `position_ids` [B, P+R]; float32 [B, R]: `rollout_log_probs` (nats), `token_level_scores` and
        `token_level_rewards` (the return, at the last token of each row), and `advantages` and `returns` where all rows
        have advantages. Then arrays of B: `uid` (the group), `traj_uid`, `data_source`, `__num_turns__`. Then the
        meta info: `temperature`.

    Raises:
        ConfigError: A row is longer than it may be; rows have different temperatures, or 0; some rows have advantages
            and others do not; or a rollout has several rows and no advantages.
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    cuts = [segment(row) for row in rows]
    temperature = _temperature(rows)
    advantages = _has_advantages(rows)
    width = _width("prompt", [len(cut.prompt_P) for cut in cuts], prompt_length)
    length = _width("response", [len(cut.response_R) for cut in cuts], response_length)
    shape, whole = (len(rows), length), (len(rows), width + length)
    names = ["rollout_log_probs", "token_level_scores", *(["advantages", "returns"] if advantages else [])]
    ids, attention = np.full(whole, pad_id, np.int64), np.zeros(whole, np.int64)
    response_mask = np.zeros(shape, np.int64)
    floats = {name: np.zeros(shape, np.float32) for name in names}
    for place, (row, cut) in enumerate(zip(rows, cuts, strict=True)):
        first, count = width - len(cut.prompt_P), len(cut.response_R)
        ids[place, first : width + count] = row.ids_T
        attention[place, first : width + count] = 1
        response_mask[place, :count] = cut.mask_R
        floats["rollout_log_probs"][place, :count] = cut.logprobs_R
        floats["token_level_scores"][place, count - 1] = row.reward
        if cut.advantage_R is not None:
            floats["advantages"][place, :count] = floats["returns"][place, :count] = cut.advantage_R
    tensors = {
        "prompts": ids[:, :width].copy(),
        "responses": ids[:, width:].copy(),
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": np.maximum(attention.cumsum(1) - 1, 0) * attention,
        "response_mask": response_mask,
        **floats,
        "token_level_rewards": floats["token_level_scores"].copy(),
    }
    names_B = {
        "uid": [row.group_id for row in rows],
        "traj_uid": [row.parent_rollout or row.rollout_id for row in rows],
        "data_source": [data_source] * len(rows),
    }
    others: _Arrays = {name: np.array(values, dtype=object) for name, values in names_B.items()}
    others["__num_turns__"] = np.array([_turns(row) for row in rows], dtype=np.int32)
    return tensors, others, {"temperature": temperature}


def data_proto(
    rows: Sequence[Row],
    *,
    prompt_length: int | None = None,
    response_length: int | None = None,
    pad_id: int = 0,
    data_source: str = "agentgym_tok",
) -> Any:
    """Return rows as verl's `DataProto`; the arguments and errors are those of `data_proto_fields`.

    Raises:
        MissingExtra: verl is not installed.
    """
    torch, protocol = imported("torch", _INSTALL), imported("verl.protocol", _INSTALL)
    tensors, others, meta = data_proto_fields(
        rows, prompt_length=prompt_length, response_length=response_length, pad_id=pad_id, data_source=data_source
    )
    return protocol.DataProto.from_dict(
        tensors={name: torch.from_numpy(array) for name, array in tensors.items()}, non_tensors=others, meta_info=meta
    )


def agent_loop_fields(row: Row) -> dict[str, Any]:
    """Return what the output of an agent loop is made of, but for its `metrics`.

    An agent loop gives one sequence for each prompt, and verl's trainer computes the advantages: pass the row of a
    rollout that has one only.

    Args:
        row: The row.

    Returns:
        Lists `prompt_ids`, `response_ids`, `response_mask` (1 where trained) and `response_logprobs` (nats);
        `reward_score` (the return), `num_turns` (those of both sides), and `extra_fields` with the rewards of turns.

    Raises:
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    cut = segment(row)
    return {
        "prompt_ids": cut.prompt_P.tolist(),
        "response_ids": cut.response_R.tolist(),
        "response_mask": cut.mask_R.astype(int).tolist(),
        "response_logprobs": cut.logprobs_R.tolist(),
        "reward_score": row.reward,
        "num_turns": _turns(row),
        "extra_fields": {
            "turn_scores": row.turn_rewards_N.tolist(),
            "tool_rewards": [],
            "rollout_id": row.rollout_id,
            "task": row.task,
            "status": row.status,
        },
    }


def agent_loop_output(row: Row) -> Any:
    """Return a row as verl's `AgentLoopOutput`; see `agent_loop_fields`.

    Raises:
        MissingExtra: verl is not installed.
        InvalidIds, InvalidLogprobs: See `segments.check_row`.
    """
    loop = imported("verl.experimental.agent_loop.agent_loop", _INSTALL)
    return loop.AgentLoopOutput(**agent_loop_fields(row), metrics=loop.AgentLoopMetrics())


def _turns(row: Row) -> int:
    return 2 * len(np.unique(row.turn_T[row.mask_T]))


def _width(what: str, lengths: Sequence[int], limit: int | None) -> int:
    longest = max(lengths, default=0)
    if limit is not None and longest > limit:
        fix = f"raise {what}_length, or leave the row out: nothing is cut"
        raise ConfigError(f"a {what} is too long", where=f"{what}_length", got=longest, expected=limit, fix=fix)
    return longest if limit is None else limit


def _temperature(rows: Sequence[Row]) -> float:
    if not rows:
        raise ConfigError("there are no rows", where="data_proto_fields", got="none", expected="at least one")
    found = np.unique(np.concatenate([row.temperature_T[row.mask_T] for row in rows])).tolist()
    if len(found) > 1 or found[0] <= 0:
        expected = "one above 0: verl scores a batch at one"
        raise ConfigError("the batch has no temperature that verl can use", where="rows", got=found, expected=expected)
    return float(found[0])


def _has_advantages(rows: Sequence[Row]) -> bool:
    has = {row.advantage_T is not None for row in rows}
    if len(has) > 1:
        raise ConfigError("some rows have advantages and others do not", where="rows")
    counts = Counter(row.parent_rollout or row.rollout_id for row in rows)
    several = next((name for name, count in counts.items() if count > 1), None)
    if has == {False} and several is not None:
        raise ConfigError(
            "verl would count a rollout of several rows several times",
            where=f"rollout {several}",
            fix="give the rows their advantages first: with_advantages(rows, ...)",
        )
    return has == {True}
