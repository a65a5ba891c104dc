"""Runs that go on where a killed process left them: the same episodes as without the kills, and none twice."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from play import CHAT, Script, acts, add, anything, everyone, make_env

from agentgym_tok import Request
from agentgym_tok.errors import ConfigError, TraceError
from agentgym_tok.harness import Budget, Harness, Observer, Retries, Subagents, SummaryCompaction, Toolbox
from agentgym_tok.trace import Episode, TraceStore, Turn, verify

TASKS = range(16)
GROUP = 2
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import test_resume; test_resume.child(sys.argv[2])"


class Beat(Observer):
    """Write a byte for each turn that the store has."""

    def on_turn(self, turn: Turn) -> None:
        os.write(1, b".")


def harness(store: TraceStore | None, script: Script | None = None, **options: Any) -> Harness:
    return Harness(
        script or Script(anything),
        CHAT,
        store=store,
        compaction=SummaryCompaction(at_turns=2),
        retries=Retries(invalid_action=1, policy=1, tool=1),
        tools=Toolbox(add),
        subagents=Subagents(budget=Budget(turns=3)),
        budget=Budget(turns=8),
        **options,
    )


def run(store: TraceStore | None, *, resume: Path | None = None, **options: Any) -> list[Episode]:
    return harness(store, **options).run_many(make_env, TASKS, group_size=GROUP, concurrency=3, seed=4, resume=resume)


def child(folder: str) -> None:
    """Go on with a run; in a process of its own."""
    with TraceStore(folder, chat=CHAT) as store:
        run(store, resume=Path(folder), observers=[Beat()])


def told(episodes: Sequence[Episode]) -> list[Any]:
    """Return what of episodes is the same in every process."""
    return [
        (
            (episode.head.task, episode.head.group_id, episode.head.replica, episode.head.seed),
            (episode.status, episode.success, episode.return_),
            None if episode.failure is None else (episode.failure.boundary, episode.failure.kind),
            [
                (
                    (turn.index, turn.attempt, turn.used, turn.edge.kind, turn.edge.reason, turn.seed),
                    (turn.context.digest, turn.completion.ids_T.tolist(), turn.reward, turn.truncation),
                )
                for turn in episode.turns
            ],
            told(episode.children),
        )
        for episode in episodes
    ]


def go_on_and_be_killed(folder: Path, turns: int, seconds: float) -> bool:
    """Go on in a process that is killed after some turns and seconds; tells whether it still ran."""
    arguments = [sys.executable, "-c", _CHILD, str(Path(__file__).parent), str(folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(turns):
            process.stdout.read(1)
        time.sleep(seconds)
        process.kill()
    return process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def whole() -> list[Episode]:
    return run(None)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.deep)])
def test_a_run_that_is_killed_and_resumed_gives_what_it_gives_without_that(
    whole: list[Episode], tmp_path: Path, kills: int
) -> None:
    draw = random.Random(kills)
    for number in range(kills):
        # The first time, at least, some episodes are over; one that is killed at its start makes no difference.
        turns = draw.randrange(18) if number else 40
        assert go_on_and_be_killed(tmp_path, turns, draw.uniform(0, 0.02)), number
    with TraceStore(tmp_path, chat=CHAT) as store:
        before = {episode.id for episode in store.episodes() if episode.status in {"done", "failed"}}
        script = Script(anything)
        made = run(store, resume=tmp_path, script=script)
        stored = list(store.episodes())
    assert before
    assert script.asked
    assert told(made) == told(whole)
    assert {one.status for one in everyone(stored)} == {"done", "failed", "abandoned"}
    # One episode of each place has ended, in one of the processes; the others were interrupted.
    ended = [episode for episode in stored if episode.status != "abandoned"]
    assert Counter(episode.id for episode in ended) == Counter(episode.id for episode in made)
    assert before <= {episode.id for episode in made}
    assert len(stored) > len(made)
    found = verify(tmp_path, CHAT)
    assert found.ok, found.breaches[:3]


# ---- what is taken, and what is played


def interrupted(folder: Path, after: int = 40) -> None:
    """Begin the run, and end it after so many turns."""

    class Ending(Observer):
        def on_turn(self, turn: Turn) -> None:
            seen.append(turn)
            if len(seen) == after:
                raise KeyboardInterrupt

    seen: list[Turn] = []
    with TraceStore(folder, chat=CHAT) as store, pytest.raises(KeyboardInterrupt):
        run(store, observers=[Ending()])


def test_a_finished_run_is_read_and_nothing_is_played(whole: list[Episode], tmp_path: Path) -> None:
    with TraceStore(tmp_path, chat=CHAT) as store:
        made = run(store)
        script = Script(anything)
        again = run(store, resume=tmp_path, script=script)
        assert len(store) == len(made)
    assert script.asked == []
    assert told(again) == told(made) == told(whole)
    assert [episode.id for episode in again] == [episode.id for episode in made]


def test_another_runs_folder_is_read_and_what_is_missing_goes_to_the_store(
    whole: list[Episode], tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    interrupted(old)
    content = (old / "shards" / "main.sqlite").read_bytes()
    with TraceStore(new, chat=CHAT) as store:
        made = run(store, resume=old)
        own = {episode.id for episode in store.episodes()}
    assert told(made) == told(whole)
    assert 0 < len(own) < len(made)
    assert (old / "shards" / "main.sqlite").read_bytes() == content
    # Resumed once more, both are looked at.
    script = Script(anything)
    with TraceStore(new, chat=CHAT) as store:
        assert told(run(store, resume=old, script=script)) == told(whole)
        assert {episode.id for episode in store.episodes()} == own
    assert script.asked == []
    assert verify(new, CHAT).ok


def test_a_run_without_a_store_can_go_on_from_a_folder(whole: list[Episode], tmp_path: Path) -> None:
    interrupted(tmp_path)
    script = Script(anything)
    assert told(run(None, resume=tmp_path, script=script)) == told(whole)
    assert script.asked


def test_a_group_of_which_a_part_is_there_is_completed(tmp_path: Path) -> None:
    with TraceStore(tmp_path, chat=CHAT) as store:
        three = harness(store).run_many(make_env, [0, 1], group_size=3, seed=4)
        script = Script(anything)
        five = harness(store, script).run_many(make_env, [0, 1], group_size=5, seed=4, resume=tmp_path)
    fresh = harness(None).run_many(make_env, [0, 1], group_size=5, seed=4)
    assert told(five) == told(fresh)
    assert {episode.id for episode in three} < {episode.id for episode in five}
    conversations = {request.conversation for request in script.asked}
    assert not conversations & {episode.id for episode in everyone(three)}


def test_other_tasks_and_seeds_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    with TraceStore(tmp_path, chat=CHAT) as store:
        harness(store).run_many(make_env, [0, 1], seed=4)
        made = harness(store).run_many(make_env, [1, 2], seed=4, resume=tmp_path)
        other = harness(store).run_many(make_env, [1, 2], seed=5, resume=tmp_path)
        assert len(store) == 5
    assert told(made) == told(harness(None).run_many(make_env, [1, 2], seed=4))
    assert told(other) == told(harness(None).run_many(make_env, [1, 2], seed=5))


def test_episodes_that_are_there_are_announced_and_not_kept_where_nobody_wants_them(tmp_path: Path) -> None:
    interrupted(tmp_path)
    seen: list[str] = []
    with TraceStore(tmp_path, chat=CHAT) as store:
        before = {episode.id for episode in store.episodes() if episode.status in {"done", "failed"}}
        made = harness(store).run_many(
            make_env,
            TASKS,
            group_size=GROUP,
            seed=4,
            resume=tmp_path,
            keep=False,
            on_episode=lambda episode: seen.append(episode.id),
        )
        ended = {episode.id for episode in store.episodes() if episode.status in {"done", "failed"}}
    assert made == []
    assert before
    assert len(seen) == len(set(seen)) == len(TASKS) * GROUP
    assert before <= set(seen) == ended


def test_what_was_left_running_is_closed_with_its_children(tmp_path: Path) -> None:
    """An interrupt closes what it ends; a kill does not, so that the next process has to."""
    with TraceStore(tmp_path, chat=CHAT) as store:
        first = run(None)[0]
        born = first.head
        store.begin(born)
        store.append(first.turns[0])
        store.begin(type(born)("child", born.task, born.source, parent=born.id, parent_turn=0, role="subagent"))
    with TraceStore(tmp_path, chat=CHAT) as store:
        assert sorted(store.left_running()) == sorted([born.id, "child"])
        harness(store).run_many(make_env, [0], seed=4, resume=tmp_path)
        assert store.left_running() == []
        statuses = {head.id: status for head, status in store.heads()}
    assert (statuses[born.id], statuses["child"]) == ("abandoned", "abandoned")
    assert verify(tmp_path, CHAT).ok


def test_without_resume_the_same_groups_are_refused_and_a_folder_must_be_there(tmp_path: Path) -> None:
    def look(request: Request) -> Sequence[int]:
        return acts("look")

    with TraceStore(tmp_path / "run", chat=CHAT) as store:
        harness(store, Script(look)).run_many(make_env, [0])
        with pytest.raises(ConfigError, match=r"resume=store\.run"):
            harness(store, Script(look)).run_many(make_env, [0])
        with pytest.raises(TraceError, match="there is no trace"):
            harness(store, Script(look)).run_many(make_env, [0, 1], resume=tmp_path / "none")
