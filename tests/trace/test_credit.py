"""Each trained token has the advantage that the rule gives it, in however many rows its rollout stands."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, UnknownName
from agentgym_tok.trace import Edge, Episode, assign_advantages, group_returns, rows
from agentgym_tok.trace.rows import family


def trees(make: Any, data: st.DataObject) -> list[Episode]:
    """Return rollouts with their subagents, all of one group."""
    forest = make.tree(data).forest()
    made = {head.id: Episode(head, tuple(turns), "done") for head, turns in forest}
    for head, _ in reversed(forest):
        if head.parent is not None:
            parent = made[head.parent]
            made[head.parent] = replace(parent, children=(made[head.id], *parent.children))
    return [made[head.id] for head, _ in forest if head.parent is None]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_trained_token_of_every_row_has_its_rollouts_advantage(make: Any, data: st.DataObject) -> None:
    roots = trees(make, data)
    made = [row for root in roots for row in rows(root)]
    own = data.draw(st.sets(st.sampled_from([member.id for root in roots for member in family(root)])))
    advantages = {root.id: float(place + 1) for place, root in enumerate(roots)}
    advantages |= {name: -10.0 - len(name) for name in own}
    given_ = assign_advantages(made, advantages)
    rule = {member.id: advantages.get(member.id, advantages[root.id]) for root in roots for member in family(root)}
    for before, row in zip(made, given_, strict=True):
        assert before.advantage_T is None
        assert row.advantage_T is not None
        assert row.advantage_T.dtype == np.float32
        assert not row.advantage_T.flags.writeable
        assert np.array_equal(row.advantage_T, np.where(row.mask_T, np.float32(rule[row.rollout_id]), 0))
        assert replace(row, advantage_T=None).ids_T is before.ids_T


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_group_statistics_count_each_root_once(make: Any, data: st.DataObject) -> None:
    roots = trees(make, data)
    with_rows = {root.id for root in roots if any(row.rollout_id == root.id for row in rows(root))}
    returns = group_returns([row for root in roots for row in rows(root)])
    assert {group: set(found) for group, found in returns.items()} == ({"g": with_rows} if with_rows else {})
    for root in roots:
        if root.id in with_rows:
            assert returns["g"][root.id] == root.return_


def compacted(make: Any) -> Episode:
    """Return a rollout of two rows: its conversation was compacted, by a summary that the policy wrote."""
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    summary = make.turn("e", 1, make.after(first, 5), [6, 7])
    last = make.turn("e", 2, make.prompt(1, 6, 7), [8], edge=Edge("compaction", 1, 2), reward=1.0)
    return make.episode([first, summary, last])


def test_an_early_row_and_a_summary_get_the_credit_of_the_end(make: Any) -> None:
    made = assign_advantages(rows(compacted(make)), {"e": 0.5})
    assert len(made) == 2
    assert all(set(row.advantage_T[row.mask_T].tolist()) == {0.5} for row in made if row.advantage_T is not None)
    assert sum(row.weight for row in made) == pytest.approx(1)


def test_step_level_advantages_follow_the_turns(make: Any) -> None:
    made = assign_advantages(rows(compacted(make)), {"e": [1.0, 2.0, 3.0]})
    found = [row.advantage_T.tolist() for row in made if row.advantage_T is not None]
    assert found == [[0, 0, 1, 1, 0, 2, 2], [0, 0, 0, 3]]


@pytest.mark.parametrize(
    ("advantages", "error", "message"),
    [
        ({}, UnknownName, "no advantage exists"),
        ({"f": 1.0}, UnknownName, "unknown advantage"),
        ({"e": [1.0, 2.0]}, ConfigError, r"shape \(3,\), or one number"),
        ({"e": [[1.0, 2.0, 3.0]]}, ConfigError, "do not fit the turns"),
        ({"e": float("nan")}, ConfigError, "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, advantages: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        assign_advantages(rows(compacted(make)), advantages)


def test_a_subagent_inherits_a_number_and_no_steps(make: Any) -> None:
    child = make.episode([make.turn("c", 0, make.prompt(9), [9])], head=make.head("c", parent="e"))
    episode = replace(compacted(make), children=(child,))
    with pytest.raises(ConfigError, match="which a subagent can inherit"):
        assign_advantages(rows(episode), {"e": [1.0, 2.0, 3.0]})
    last = assign_advantages(rows(episode), {"e": [1.0, 2.0, 3.0], "c": -1.0})[-1]
    assert last.advantage_T is not None
    assert last.advantage_T.tolist() == [0, -1]
