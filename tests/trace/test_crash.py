"""What a crash, a full disk or a read-only folder can lose."""

import contextlib
import itertools
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.trace import TraceStore, verify


@pytest.fixture(scope="module")
def child(make: Any) -> Iterator[Any]:
    with make.child() as process:
        yield process


def write_until_killed(child: Any, run: Path, after: int, seconds: float, **request: Any) -> tuple[list[str], bool]:
    """Kill a writer some time after it did some things; return all that it did, and whether it was alive."""
    done: list[str] = []
    for said in child.write(run, **request):
        assert "failed" not in said, said
        if "pid" in said:
            pid = said["pid"]
        elif "done" in said:
            done.append(said["done"])
        if len(done) == after and "status" not in said:
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
            after = -1
    return done, said["status"] == signal.SIGKILL


def kill(make: Any, child: Any, folder: Path, seed: int, kills: int) -> Counter[str]:
    """Kill writers at random moments, each of which goes on where the one before stood; count where they stood."""
    rng, names = random.Random(seed), ["one", "two"]
    steps = [step for name in names for step in make.story(name)]
    for whole in ("warm", "whole"):  # the first one waits for the process to start
        began = time.monotonic()
        list(child.write(folder / whole, names, checkpoint=16))
    span = (time.monotonic() - began) / len(steps)
    moments: Counter[str] = Counter()
    for number in itertools.count():
        run, taken, alive = folder / str(number), 0, True
        while alive:
            # Opening, each step and closing are as likely; the file may be theirs or new.
            after, seconds = rng.randrange(len(steps) - taken + 2), rng.uniform(0, 3 * span)
            done, alive = write_until_killed(child, run, after, seconds, names=names, skip=taken, checkpoint=16)
            taken += done.count("step")
            # What is there is what was said to be done, and at most the step in flight.
            states = [make.told(steps[:taken]), make.told(steps[: taken + 1])]
            found = make.read(run)
            assert any(make.same_episodes(found, state) for state in states), (seed, number, done)
            assert not found or verify(run).ok
            if alive:
                moments["open" if not done else "close" if taken == len(steps) else "write"] += 1
                if moments.total() == kills:
                    return moments
    raise AssertionError


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(3, 13))])
def test_a_writer_killed_at_100_moments_loses_at_most_the_step_in_flight(
    make: Any, child: Any, tmp_path: Path, seed: int
) -> None:
    moments = kill(make, child, tmp_path, seed, 100)
    assert all(moments[name] for name in ("open", "write", "close")), moments


def test_a_killed_writers_shard_is_written_on_while_somebody_reads_it(make: Any, child: Any, tmp_path: Path) -> None:
    *_, last = child.write(tmp_path, ["one"], end="kill")
    assert last["status"] == signal.SIGKILL
    with TraceStore(tmp_path, mode="r") as reader:
        episodes = reader.episodes()
        next(episodes)
        with reader._readers["main"].snapshot():
            assert reader.heads()
            with TraceStore(tmp_path, meta=make.meta) as store:
                store.begin(make.head("two"))
            assert len(reader.heads()) == 2
        assert len(reader.heads()) == 3


def test_a_writer_killed_before_its_first_commit_leaves_a_shard_that_can_be_begun(make: Any, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "main.sqlite").touch()
    with pytest.raises(TraceError, match="there is no trace"):
        TraceStore(tmp_path, mode="r")
    with pytest.raises(TraceError, match="an empty shard"):
        TraceStore(tmp_path)
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        assert len(store) == 1


def test_a_full_disk_is_our_error_and_earlier_turns_stay(make: Any, tmp_path: Path) -> None:
    context = make.prompt(*range(300))
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        assert store._writer is not None
        connection = store._writer._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        turns = [make.turn("e", 0, context, list(range(500)), text="x" * 2000)]

        def fill() -> None:
            for index in range(1, 50):
                store.append(turns[-1])
                turns.append(make.turn("e", index, make.after(turns[-1], 1), list(range(500)), text="x" * 2000))

        with pytest.raises(TraceError, match=r"full.*next: free disk space"):
            fill()
        turn = turns[-1]
        assert turn.index > 0
        assert len(store.episode("e").turns) == turn.index
        with pytest.raises(TraceError, match="full"):
            store.append(turn)
        connection.execute("PRAGMA max_page_count = 100000")
        store.append(turn)
        store.finish("e")
    proof = verify(tmp_path)
    assert proof.ok
    assert proof.turns == len(turns)


@pytest.mark.parametrize("statement", range(8))
def test_a_failure_at_any_statement_of_an_append_changes_nothing(make: Any, tmp_path: Path, statement: int) -> None:
    turns = make.rich_turns("e")
    with TraceStore(tmp_path, meta=make.meta, token_text=str) as store:
        store.add_image(*make.image)
        store.begin(make.head("e"))
        store.append(turns[0])
        store.append(turns[1])
        writer: Any = store._writer
        real, count = writer._connection, 0

        class Failing:
            def execute(self, *arguments: Any) -> Any:
                nonlocal count
                count += 1
                if count > statement:
                    raise sqlite3.OperationalError("disk I/O error")
                return real.execute(*arguments)

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        writer._connection = writer._nodes._connection = Failing()
        with pytest.raises(TraceError, match="disk I/O error"):
            store.append(turns[2])
        writer._connection = writer._nodes._connection = real
        if real.in_transaction:
            real.execute("ROLLBACK")
        assert len(store.episode("e").turns) == 2
        store.append(turns[2])
    proof = verify(tmp_path)
    assert proof.ok
    assert proof.turns == 3


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
def test_an_interrupt_beside_a_commit_leaves_a_store_that_goes_on(make: Any, tmp_path: Path, statement: str) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:
        writer: Any = store._writer
        real = writer._connection

        class Interrupted:
            def execute(self, text: str, *arguments: Any) -> Any:
                result = real.execute(text, *arguments)
                if text == statement:
                    raise KeyboardInterrupt
                return result

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        for method, *arguments in make.story("e"):
            writer._connection = writer._nodes._connection = Interrupted()
            with contextlib.suppress(KeyboardInterrupt):
                getattr(store, method)(*arguments)
            writer._connection = writer._nodes._connection = real
            getattr(store, method)(*arguments)
    assert make.same_episodes(make.read(tmp_path), make.told(make.story("e")))
    assert verify(tmp_path).ok


def _as_nobody(work: Any) -> str:
    """Run something without the rights of root; return what it raised or said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = str(work())
        except BaseException as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.fixture
def readonly(make: Any) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        Path(folder).chmod(0o755)
        run = make.run(Path(folder) / "run")
        (run / "shards" / "main.sqlite").chmod(0o444)
        (run / "shards" / "main.lock").chmod(0o444)
        (run / "shards").chmod(0o555)
        yield run
        (run / "shards").chmod(0o755)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_read_only_folder_is_read_and_not_written(readonly: Path) -> None:
    def read() -> int:
        with TraceStore(readonly, mode="r") as store:
            return sum(len(episode.turns) for episode in store.episodes())

    assert _as_nobody(read) == "7"
    assert _as_nobody(lambda: verify(readonly).ok) == "True"
    assert _as_nobody(lambda: TraceStore(readonly)).startswith("TraceError: the shard cannot be locked")
    assert _as_nobody(lambda: TraceStore(readonly / "shards" / "new")).startswith(
        "TraceError: the run cannot be created"
    )


def test_reading_while_another_process_writes_sees_whole_turns(make: Any, child: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    # So many that the pipe is full of what was done before all is.
    writer = child.write(tmp_path, [f"e{number}" for number in range(600)])
    pid = next(writer)["pid"]
    for number, said in enumerate(writer):  # noqa: B007  # the last one is looked at
        if number == 60:
            os.kill(pid, signal.SIGKILL)
        elif number < 60 and number % 20 == 4:
            proof = verify(tmp_path)
            assert proof.ok, proof.breaches[:3]
            seen.append(proof.turns)
            assert sum(len(episode.turns) for episode in make.read(tmp_path).values()) >= seen[-1]
    assert said["status"] == signal.SIGKILL
    assert seen == sorted(seen)
    assert seen[-1]


def test_a_damaged_shard_is_not_written_to(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path)
    path = run / "shards" / "main.sqlite"
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    with pytest.raises(TraceCorrupt):
        TraceStore(run)
