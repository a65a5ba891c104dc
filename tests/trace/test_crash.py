"""What a crash, a full disk or a read-only folder can lose."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.trace import TraceStore, verify

WRITER = textwrap.dedent(
    """
    import sys
    import numpy as np
    from agentgym_tok.tokens import Context, Root, Span
    from agentgym_tok.trace import Edge, EpisodeHead, RunMeta, TraceStore, Turn
    from agentgym_tok.types import Completion, Sampling

    root = Root("f" * 64, 5000)
    with TraceStore(sys.argv[1], meta=RunMeta(fingerprint="f" * 64, vocab_size=5000)) as store:
        print("open", flush=True)
        for episode in range(100_000):
            name = f"{sys.argv[2]}-{episode}"
            store.begin(EpisodeHead(name, "task"))
            context = Context(root, Span(np.arange(400), "prompt"))
            for index in range(5):
                answer = Completion(np.array([episode % 5000, index]), np.array([-0.5, -1.0]), logprobs="raw",
                                    sampling=Sampling())
                edge = Edge("continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0)
                store.append(Turn(name, index, context, context.digest, answer, edge, text="x" * 300))
                print(name, index, flush=True)
                context = context.sampled(answer.ids_T, answer.logprobs_T)
                context = context.extend(Span(np.array([7, 8, index]), "observation"))
            store.finish(name, "done", True)
    """
)


def killed(run: Path, round_: int, seconds: float) -> list[tuple[str, int]]:
    """Write until a kill; return the turns whose append returned."""
    command = [sys.executable, "-c", WRITER, str(run), str(round_)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines()
    # The pipe itself may hold half a line.
    return [(line.split()[0], int(line.split()[1])) for line in lines if len(line.split()) == 2]


def _kill_rounds(run: Path, rounds: int) -> None:
    acknowledged: list[tuple[str, int]] = []
    rng = random.Random(str(run.name))
    for round_ in range(rounds):
        acknowledged += killed(run, round_, rng.uniform(0, 0.2))
        with TraceStore(run, mode="r") as store:
            written = [(turn.episode, turn.index) for episode in store.episodes() for turn in episode.turns]
        assert len(set(written)) == len(written), "doubled"
        assert set(acknowledged) <= set(written), "lost after the append had returned"
        assert len(written) <= len(acknowledged) + round_ + 1, "more than the turn in flight"
    proof = verify(run)
    assert proof.ok, proof.breaches[:3]
    assert proof.turns == len(written)


def test_a_killed_writer_loses_no_turn_that_was_appended(tmp_path: Path) -> None:
    _kill_rounds(tmp_path, 5)


@pytest.mark.deep
def test_a_writer_killed_at_300_moments_loses_no_turn_that_was_appended(tmp_path: Path) -> None:
    for block in range(60):
        _kill_rounds(tmp_path / str(block), 5)


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


def test_reading_while_another_process_writes_sees_whole_turns(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), "w"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.stdout.readline()
        try:
            seen = []
            for _ in range(3):
                proof = verify(tmp_path)
                assert proof.ok, proof.breaches[:3]
                seen.append(proof.turns)
                with TraceStore(tmp_path, mode="r") as store:
                    assert sum(len(episode.turns) for episode in store.episodes()) >= seen[-1]
                process.stdout.readline()
            assert seen == sorted(seen)
        finally:
            process.kill()


def test_a_damaged_shard_is_not_written_to(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path)
    path = run / "shards" / "main.sqlite"
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    with pytest.raises(TraceCorrupt):
        TraceStore(run)
