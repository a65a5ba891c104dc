"""A pruned run holds what was chosen, whole, and says what was left out."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import TraceError, UnknownName
from agentgym_tok.trace import EpisodeHead, Failure, TraceStore, account, verify
from agentgym_tok.trace.exchange.merge import merge
from agentgym_tok.trace.exchange.prune import Selection, prune, pruned

ROLLOUTS: tuple[tuple[str, dict[str, Any], str, bool | None], ...] = (
    ("a0", {"group_id": "a", "task": "x/1"}, "done", True),
    ("a1", {"group_id": "a", "task": "x/1"}, "done", False),
    ("b0", {"group_id": "b", "task": "x/2"}, "done", True),
    ("b1", {"group_id": "b", "task": "x/2"}, "failed", None),
    ("c0", {"group_id": "c", "task": "y/1"}, "running", None),
)


@pytest.fixture
def run(make: Any, tmp_path: Path) -> Path:
    """Write five rollouts in three groups; a0 has a subagent that has one, in another shard."""
    folder = tmp_path / "run"
    with TraceStore(folder, meta=make.meta) as main, TraceStore(folder, shard="w") as other:
        main.add_image(*make.image)
        for place, (name, fields, status, success) in enumerate(ROLLOUTS):
            main.begin(EpisodeHead(name, **fields, replica=place, created=float(place)))
            for turn in make.rich_turns(name) if place else [make.turn(name, 0, make.prompt(9), [1, 2])]:
                main.append(turn)
            if status != "running":
                main.finish(name, status, success, Failure("tool", "Down") if status == "failed" else None)
        for name, parent in (("sub", "a0"), ("subsub", "sub")):
            other.begin(make.head(name, parent=parent))
            other.append(make.turn(name, 0, make.prompt(9), [3]))
    return folder


def kept(run: Path, out: Path, **selection: Any) -> list[str]:
    prune(run, out, Selection(**selection))
    proof = verify(out)
    assert proof.ok, proof.breaches
    with TraceStore(out, mode="r") as store:
        return [head.id for head, _ in store.heads()]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, ["a0", "sub", "subsub", "a1", "b0", "b1", "c0"]),
        ({"status": ("done",)}, ["a0", "sub", "subsub", "a1", "b0"]),
        ({"status": ("failed", "running")}, ["b1", "c0"]),
        ({"success": True}, ["a0", "sub", "subsub", "b0"]),
        ({"success": False}, ["a1"]),
        ({"group": ("b", "c")}, ["b0", "b1", "c0"]),
        ({"task": ("x/*",), "success": True}, ["a0", "sub", "subsub", "b0"]),
        ({"task": ("?/1",)}, ["a0", "sub", "subsub", "a1", "c0"]),
        ({"episode": ("b1", "c0")}, ["b1", "c0"]),
        ({"episode": ("subsub",)}, ["a0", "sub", "subsub"]),
        ({"newest": 2}, ["b1", "c0"]),
        ({"newest": 1, "status": ("done",)}, ["b0"]),
        ({"newest": 9, "status": ("done",)}, ["a0", "sub", "subsub", "a1", "b0"]),
        ({"status": ("done",), "whole_groups": True}, ["a0", "sub", "subsub", "a1"]),
        ({"whole_groups": True}, ["a0", "sub", "subsub", "a1", "b0", "b1", "c0"]),
    ],
)
def test_chosen_rollouts_are_kept_with_all_their_subagents(
    run: Path, tmp_path: Path, selection: dict[str, Any], expected: list[str]
) -> None:
    assert kept(run, tmp_path / "new", **selection) == expected


def test_what_is_kept_is_what_it_was(make: Any, run: Path, tmp_path: Path) -> None:
    kept(run, tmp_path / "new", success=True)
    with TraceStore(run, mode="r") as before, TraceStore(tmp_path / "new", mode="r") as after:
        assert before.meta == after.meta
        for name in ("a0", "sub", "b0"):
            one, other = before.episode(name), after.episode(name)
            assert (one.head, one.status, one.success) == (other.head, other.status, other.success)
            assert all(map(make.same_turn, one.turns, other.turns))
            assert len(one.turns) == len(other.turns)


def test_spans_and_images_of_what_was_left_out_are_gone(run: Path, tmp_path: Path) -> None:
    kept(run, tmp_path / "new", episode=("a0",))
    connection = sqlite3.connect(tmp_path / "new" / "shards" / "main.sqlite")
    try:
        for table, count in (("nodes", 3), ("images", 0), ("roots", 1), ("texts", 3)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
    finally:
        connection.close()


def test_what_was_left_out_is_counted_and_stands_in_the_new_run(run: Path, tmp_path: Path) -> None:
    document = prune(run, tmp_path / "new", Selection(status=("done",), success=False))
    assert pruned(tmp_path / "new") == [document] == [json.loads(json.dumps(document))]
    assert pruned(run) == []
    assert document["rule"] == {"status": ["done"], "success": False}
    assert document["kept"] == {"rollouts": 1, "episodes": 1, "turns": 3}
    left = document["left_out"]
    assert {name: left[name] for name in ("rollouts", "episodes", "turns")} == {
        "rollouts": 4,
        "episodes": 6,
        "turns": 12,
    }
    for place, objective in enumerate(("rl", "sft")):
        with TraceStore(run, mode="r") as store:
            whole = account(store.episodes(), objective)
        with TraceStore(tmp_path / "new", mode="r") as store:
            rest = account(store.episodes(), objective)
        for name in ("sampled", "trained"):
            assert left["accounting"][place][name] == getattr(whole, name) - getattr(rest, name) > 0


def test_prunings_of_prunings_and_of_merged_runs_all_stand_there(run: Path, tmp_path: Path) -> None:
    prune(run, tmp_path / "1", Selection(success=True))
    prune(tmp_path / "1", tmp_path / "2", Selection(group=("a",)))
    prune(run, tmp_path / "3", Selection(group=("c",)))
    merge([tmp_path / "2", tmp_path / "3"], tmp_path / "4")
    rules = [document["rule"] for document in pruned(tmp_path / "4")]
    assert rules == [{"success": True}, {"group": ["a"]}, {"group": ["c"]}]


def test_nothing_to_keep_and_unknown_episodes_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r'no rollout is like that.*"group":\["z"\]'):
        prune(run, tmp_path / "new", Selection(group=("z",)))
    with pytest.raises(UnknownName, match="did you mean sub"):
        prune(run, tmp_path / "new", Selection(episode=("subb",)))
    assert not (tmp_path / "new").exists()


def test_a_damaged_run_says_what_can_be_read(run: Path, tmp_path: Path) -> None:
    prune(run, tmp_path / "new", Selection())
    (tmp_path / "new" / "shards" / "a.sqlite").write_bytes(b"no shard" * 1000)
    assert len(pruned(tmp_path / "new")) == 1
