"""One writer for each shard."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import StoreLocked, TraceError
from agentgym_tok.trace import TraceStore
from agentgym_tok.trace.lock import ShardLock

HOLDER = textwrap.dedent(
    """
    import os, sys, time
    from agentgym_tok.trace import RunMeta, TraceStore
    store = TraceStore(sys.argv[1], meta=RunMeta(fingerprint="f" * 64, vocab_size=5000))
    child = os.fork() if len(sys.argv) > 2 else 0
    os.write(1, f"ready {os.getpid()}\\n".encode())  # one write, so that two processes never share a line
    time.sleep(60)
    """
)


def holder(run: Path, *arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(run), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process


def test_a_second_writer_of_this_process_is_refused(make: Any, tmp_path: Path) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    with TraceStore(tmp_path, meta=make.meta) as store:
        with pytest.raises(StoreLocked, match=owner):
            TraceStore(tmp_path)
        store.begin(make.head("e"))
    with TraceStore(tmp_path) as store:
        assert len(store) == 1


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert process.stdout.readline().startswith("ready")
        with pytest.raises(StoreLocked, match=f"process {process.pid} on"):
            TraceStore(tmp_path)
        process.kill()
        process.wait()
    with TraceStore(tmp_path) as store:
        assert len(store) == 0


def test_a_child_that_outlives_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as process:
        pids = {int(process.stdout.readline().split()[1]) for _ in range(2)}
        (child,) = pids - {process.pid}
        process.kill()
        process.wait()
        try:
            with TraceStore(tmp_path) as store:
                assert len(store) == 0
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_store_that_failed_to_open_holds_nothing(make: Any, tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        TraceStore(tmp_path)
    with TraceStore(tmp_path, meta=make.meta):
        pass


def test_releasing_twice_frees_once(tmp_path: Path) -> None:
    lock = ShardLock(tmp_path / "x.lock")
    lock.release()
    other = ShardLock(tmp_path / "x.lock")
    lock.release()
    with pytest.raises(StoreLocked):
        ShardLock(tmp_path / "x.lock")
    other.release()


def test_a_lock_in_no_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be locked"):
        ShardLock(tmp_path / "no" / "x.lock")
