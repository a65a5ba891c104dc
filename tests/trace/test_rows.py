"""Rows train every trained token once, in the very context that produced it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import Edge, Episode, Failure, Row, Turn, account, mask_reason, rows
from agentgym_tok.types import Message, Sampling


def walk(make: Any, name: str = "e", turns: int = 3, **fields: Any) -> list[Turn]:
    context, made = make.prompt(1, 2, 3), []
    for index in range(turns):
        made.append(make.turn(name, index, context, [10 + index, 20 + index], **fields))
        context = make.after(made[-1], 30 + index)
    return made


def seen(turn: Turn) -> list[int]:
    return [*turn.context.ids.tolist(), *turn.completion.ids_T.tolist()]


# ---- the cover


@pytest.mark.parametrize("merge", ["prefix", "turn"])
@pytest.mark.parametrize("objective", ["rl", "sft"])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_trained_token_stands_once_under_its_exact_context(
    make: Any, merge: Any, objective: Any, data: st.DataObject
) -> None:
    forest = make.tree(data).forest()
    members = [Episode(head, tuple(turns)) for head, turns in forest]
    for place in range(len(members) - 1, 0, -1):  # hang children under their parents, or under the first
        child = members.pop(place)
        parent = next((k for k, member in enumerate(members) if member.id == child.head.parent), 0)
        members[parent] = replace(members[parent], children=(*members[parent].children, child))
    (root,) = members
    made = rows(root, merge=merge, objective=objective)
    covered: Counter[tuple[str, int, int]] = Counter()
    for row in made:
        assert row.mask_T.any()
        assert {len(row.ids_T)} == {
            len(array) for array in (row.mask_T, row.logprobs_T, row.version_T, row.turn_T, row.temperature_T)
        }
        assert np.isfinite(row.logprobs_T).all()
        assert not row.logprobs_T[~row.mask_T].any()
        assert (row.turn_T[~row.mask_T] == -1).all()
        for place in np.flatnonzero(row.mask_T).tolist():
            turn = next(
                turn
                for head, turns in forest
                if head.id == row.rollout_id
                for turn in turns
                if turn.index == row.turn_T[place] and turn.used
            )
            offset = place - len(turn.context)
            covered[row.rollout_id, turn.index, offset] += 1
            assert row.ids_T[: place + 1].tolist() == seen(turn)[: place + 1]
            if turn.completion.logprobs_T is not None:
                assert row.logprobs_T[place].tobytes() == turn.completion.logprobs_T[offset].tobytes()
    expected = Counter(
        (head.id, turn.index, offset)
        for head, turns in forest
        for turn in turns
        if mask_reason(turn, objective) is None
        for offset in range(len(turn.completion.ids_T))
    )
    assert covered == expected
    assert account(root, objective).complete
    assert not made or sum(row.weight for row in made) == pytest.approx(1)


def test_a_walk_becomes_one_row(make: Any) -> None:
    turns = walk(make)
    (row,) = rows(make.episode(turns))
    assert row.ids_T.tolist() == seen(turns[2])
    assert row.mask_T.tolist() == [False] * 3 + [True, True, False] * 2 + [True, True]
    assert row.turn_T.tolist() == [-1, -1, -1, 0, 0, -1, 1, 1, -1, 2, 2]
    assert row.logprobs_T.tolist() == [0, 0, 0, -0.5, -0.75, 0, -0.5, -0.75, 0, -0.5, -0.75]
    assert row.temperature_T.tolist() == pytest.approx([1, 1, 1, 0.7, 0.7, 1, 0.7, 0.7, 1, 0.7, 0.7])
    assert len(rows(make.episode(turns), merge="turn")) == 3


def test_a_fork_starts_a_row_in_which_earlier_turns_have_mask_0(make: Any) -> None:
    turns = walk(make)
    turns.append(make.turn("e", 3, make.after(turns[0], 99), [50], edge=Edge("continuation", 0, 3)))
    first, second = rows(make.episode(turns))
    assert first.ids_T.tolist() == seen(turns[2])
    assert second.ids_T.tolist() == [1, 2, 3, 10, 20, 99, 50]
    assert second.mask_T.tolist() == [False] * 6 + [True]
    assert (first.weight, second.weight) == (6 / 7, 1 / 7)


def test_the_merge_is_proved_on_ids_whatever_the_edge_says(make: Any) -> None:
    turns = walk(make, turns=2)
    told = replace(turns[1], edge=Edge("unknown", None, 1))
    assert len(rows(make.episode([turns[0], told]))) == 1
    drifted = make.turn("e", 1, make.prompt(1, 2, 3, 10, 21, 30), [11], edge=turns[1].edge)
    assert len(rows(make.episode([turns[0], drifted]))) == 2


def test_an_untrained_turn_in_the_middle_stays_in_the_row_with_mask_0(make: Any) -> None:
    turns = walk(make)
    turns[1] = replace(turns[1], failure=Failure("tool", "Broken"))
    (row,) = rows(make.episode(turns))
    assert row.turn_T.tolist() == [-1, -1, -1, 0, 0, -1, -1, -1, -1, 2, 2]


def test_versions_are_known_for_each_token(make: Any) -> None:
    turns = walk(make, turns=2, completion={"weight_versions": (("a", 0, 1), ("b", 1, 2))})
    turns[1] = make.turn("e", 1, turns[1].context, [1, 2], completion={"weight_versions": (("b", 0, 1),)})
    (row,) = rows(make.episode(turns))
    assert row.versions == ("a", "b")
    assert row.version_T.tolist() == [-1, -1, -1, 0, 1, -1, 1, -1]


# ---- what is not trained


@pytest.mark.parametrize(
    ("change", "rl", "sft"),
    [
        ({}, None, None),
        ({"used": False}, "unused_attempt", "unused_attempt"),
        ({"failure": Failure("world", "Timeout")}, "failed_turn", "failed_turn"),
        ({"edge": Edge("auxiliary", None, 0)}, "auxiliary", "auxiliary"),
        ({"completion": {"finish_reason": "abort"}}, "aborted", "aborted"),
        ({"completion": {"origin": "forced"}}, "forced", "forced"),
        ({"completion": {"ids_exact": False}}, "inexact_ids", "inexact_ids"),
        ({"completion": {"origin": "demonstration"}}, "demonstration", None),
        ({"completion": {"logprobs_T": None, "logprobs": "missing"}}, "no_logprobs", None),
        ({"completion": {"logprobs": "sentinel"}}, "sentinel_logprobs", None),
        ({"completion": {"sampling": None}}, "no_sampling", None),
        ({"completion": {"logprobs": "processed"}}, None, None),
        ({"edge": Edge("compaction", None, 0)}, None, None),
    ],
)
def test_each_reason_masks_and_is_counted(make: Any, change: dict[str, Any], rl: str | None, sft: str | None) -> None:
    turn = make.turn("e", 0, make.prompt(1), [2, 3], **change)
    for objective, reason in (("rl", rl), ("sft", sft)):
        assert mask_reason(turn, objective) == reason  # type: ignore[arg-type]
        accounting = account(make.episode([turn]), objective)  # type: ignore[arg-type]
        assert accounting.masked == ({} if reason is None else {reason: 2})
        assert accounting.trained == (2 if reason is None else 0)
        assert accounting.complete


def test_prefilled_ids_are_counted_as_forced(make: Any) -> None:
    turn = make.turn("e", 0, make.prompt(1), [2, 3])
    context = turn.context.extend(replace(turn.context.span, origin="forced"))
    accounting = account(make.episode([make.turn("e", 0, context, [2, 3])]))
    assert (accounting.sampled, accounting.forced, accounting.trained) == (2, 1, 2)
    assert accounting.masked == {"forced": 1}


def test_accountings_add_up_and_show_what_is_missing(make: Any) -> None:
    one, two = make.episode(walk(make, "e")), make.episode(walk(make, "f", used=False))
    total = account([one, two])
    assert total == account(one) + account(two)
    assert total.table() == [
        ("sampled", 12),
        ("demonstration", 0),
        ("forced", 0),
        ("trained", 6),
        ("masked: unused_attempt", 6),
        ("unaccounted", 0),
    ]
    assert total.to_dict()["complete"] is True
    assert not replace(total, trained=7).complete
    assert replace(total, trained=5).table()[-1] == ("unaccounted", 1)


# ---- credit


def family(make: Any) -> Episode:
    grandchild = make.episode(walk(make, "deep", turns=1), head=make.head("deep", parent="sub", group_id="x"))
    child = make.episode(walk(make, "sub", turns=2), head=make.head("sub", parent="root"), children=(grandchild,))
    turns = walk(make, "root", turns=2, reward=0.5)
    return make.episode(turns, head=make.head("root", group_id="g"), children=(child,))


def test_a_rollout_weighs_one_with_all_its_subagents(make: Any) -> None:
    made = rows(family(make))
    assert [(row.rollout_id, row.parent_rollout) for row in made] == [("root", None), ("sub", "root"), ("deep", "root")]
    assert {row.group_id for row in made} == {"g"}
    assert [row.weight for row in made] == pytest.approx([0.4, 0.4, 0.2])
    assert [row.reward for row in made] == [1.0, 0.0, 0.0]
    assert [row.weight for row in rows(family(make), weighting="row")] == [1, 1, 1]
    assert [row.weight for row in rows(family(make), weighting="token")] == [4, 4, 2]


def test_every_row_knows_all_turns_of_its_episode(make: Any) -> None:
    turns = [
        make.turn("e", 0, make.prompt(1), [1], reward=0.25, facts={"anchor": "You see a desk."}, valid_action=True),
        make.turn("e", 1, make.prompt(2), [2], reward=9.0, used=False, edge=Edge("fresh_prompt", 0, 1)),
        make.turn("e", 1, make.prompt(2), [3], reward=0.5, attempt=1, edge=Edge("retry", 1, 1), format_ok=False),
        make.turn(
            "e",
            2,
            make.prompt(3),
            [4],
            edge=Edge("fresh_prompt", 1, 2),
            valid_action=False,
            format_ok=True,
            messages=(
                Message("user", "hidden", trusted=True),
                Message("user", "You see: A drawer.", trusted=True, untrusted=((9, 18),)),
                Message("user", "p", trusted=True),
            ),
        ),
        make.turn("e", 3, make.prompt(4), [5], used=False, reward=1.0, edge=Edge("fresh_prompt", 2, 3)),
    ]
    made = rows(make.episode(turns))
    assert [row.turn_T[row.mask_T].tolist() for row in made] == [[0], [1], [2]]
    for row in made:
        assert row.turn_rewards_N.tolist() == [0.25, 0.5, 0.0, 0.0]
        assert row.anchor_N == ("You see a desk.", "", "A drawer.", "")
        assert row.valid_N.tolist() == [1, -1, 0, -2]
        assert row.reward == 0.75
        assert row.advantage_T is None


@pytest.mark.parametrize(
    ("status", "truncated", "expected"),
    [("done", False, "done"), ("done", True, "truncated"), ("failed", True, "failed"), ("running", False, "running")],
)
def test_a_row_says_how_its_episode_ended(make: Any, status: str, truncated: bool, expected: str) -> None:
    (row,) = rows(make.episode(walk(make, truncated=truncated), status=status))
    assert row.status == expected


# ---- shape


def test_arrays_have_the_documented_types_and_cannot_be_written(make: Any) -> None:
    (row,) = rows(make.episode(walk(make)))
    types = {
        "ids_T": np.int32,
        "mask_T": np.bool_,
        "logprobs_T": np.float32,
        "version_T": np.int32,
        "turn_T": np.int32,
        "temperature_T": np.float32,
        "turn_rewards_N": np.float64,
        "valid_N": np.int8,
    }
    assert {name: getattr(row, name).dtype for name in types} == types
    assert not any(getattr(row, name).flags.writeable for name in types)
    assert set(Row.__dataclass_fields__) >= {*types, "anchor_N", "versions", "weight", "status", "task"}


def test_greedy_turns_keep_temperature_zero(make: Any) -> None:
    (row,) = rows(make.episode(walk(make, completion={"sampling": Sampling(temperature=0)})))
    assert set(row.temperature_T[row.mask_T].tolist()) == {0.0}


@pytest.mark.parametrize("option", ["merge", "weighting", "objective"])
def test_unknown_options_are_refused(make: Any, option: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown {option}"):
        rows(make.episode(walk(make)), **{option: "best"})


def test_an_episode_without_trained_tokens_has_no_rows(make: Any) -> None:
    assert rows(make.episode(walk(make, used=False))) == []
    assert rows(Episode(make.head("e"))) == []
