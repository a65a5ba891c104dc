"""One writer for each shard, held by the operating system, so that a killed writer leaves no lock behind."""

import fcntl
import json
import os
import socket
import weakref
from pathlib import Path

from agentgym_tok.errors import StoreLocked, TraceError

__all__ = ["ShardLock"]


class ShardLock:
    """Hold the right to write a shard.

    The lock is `flock` on a file that says who holds it. It ends with the process, however it ends.

    Args:
        path: The lock file; it stays there for ever, since removing it would race.

    Raises:
        StoreLocked: Somebody holds it; the message names process and host.
        TraceError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = _RELEASED
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _claim(file, path)
            except BaseException:
                os.close(file)
                raise
        except StoreLocked:
            raise
        except OSError as error:
            fix = "choose a folder that can be written, on a file system that has locks"
            raise TraceError("the shard cannot be locked", where=path, got=error.strerror, fix=fix) from error
        self._file = file
        _held.add(self)

    def release(self) -> None:
        """Let go of the shard; a second call does nothing."""
        file, self._file = self._file, _RELEASED
        if file != _RELEASED:
            # Unlocking, rather than closing alone, also frees what a forked child may still have open.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


_RELEASED = -1
_held: "weakref.WeakSet[ShardLock]" = weakref.WeakSet()


def _claim(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreLocked(
            "another writer holds this shard",
            where=path,
            got=_owner(os.pread(file, 4096, 0)),
            expected="one writer for each shard",
            fix="wait until it has ended, or write a shard of your own: TraceStore(run, shard=...)",
        ) from None
    os.ftruncate(file, 0)  # the last owner's name
    os.pwrite(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)


def _owner(content: bytes) -> str:
    try:
        owner = json.loads(content)
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has not said its name yet"


def _forget_in_child() -> None:
    # A child that outlives a killed writer would keep the shard locked through the descriptor it inherited.
    for lock in list(_held):
        if lock._file != _RELEASED:
            os.close(lock._file)
            lock._file = _RELEASED


os.register_at_fork(after_in_child=_forget_in_child)
