"""A process that runs foreign code: asked one thing at a time, within limits of time and length."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref

from agentgym_tok.envs.world_worker import HEADER, LONGEST_ANSWER
from agentgym_tok.errors import WorldError

__all__ = ["WorldProcess"]

_LAST_WORDS = 2_000
_READ = 2**16
_GLANCE_S = 0.05
_LAST_BREATH_S = 0.5

# The child finds modules where this process does, also where nobody has installed them.
_WORKER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); connection, lifeline = map(int, sys.argv[2:]); "
    "del sys.argv[1:]; from agentgym_tok.envs.world_worker import main; main(connection, lifeline)"
)


class WorldProcess:
    """Start a fresh interpreter that serves one world.

    It has a session of its own, no standard input and none of this process's open files. It dies with this process,
    also when that is killed, and with it whatever it has forked within its process group.

    Args:
        name: What errors call the world.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket, socket_theirs = socket.socketpair()
        lifeline_theirs, lifeline = os.pipe()
        inherited = (socket_theirs.fileno(), lifeline_theirs)
        try:
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter
                [sys.executable, "-X", "faulthandler", "-c", _WORKER, json.dumps(sys.path), *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=inherited,
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            os.close(lifeline)
            raise
        finally:
            socket_theirs.close()
            os.close(lifeline_theirs)
        assert self._process.stdout is not None
        self._prints = self._process.stdout.fileno()
        os.set_blocking(self._prints, False)
        self._printed = b""
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._prints, select.POLLIN)
        self._end = weakref.finalize(self, _end, self._process, self._socket, lifeline, os.getpid())

    @property
    def ended(self) -> bool:
        """A failure or `end` has ended it: nothing can be asked any more."""
        return not self._end.alive

    @property
    def alive(self) -> bool:
        """It can be asked: it has not ended by itself either."""
        return not self.ended and self._process.poll() is None

    def ask(self, request: bytes, limit_s: float) -> bytes:
        """Return the answer to one request. Whatever keeps it from coming ends the process.

        Args:
            request: The message.
            limit_s: Seconds until the whole answer must be there.

        Raises:
            WorldError: There was no answer in time, it is too long, or the process died.
        """
        try:
            return self._exchange(request, limit_s)
        except TimeoutError as error:
            self._process.send_signal(signal.SIGABRT)  # its faulthandler then prints where it stands
            self._wait()
            raise self._failed("the world does not answer", f"no answer within {limit_s:g} s") from error
        except (EOFError, ConnectionError) as error:
            self._wait()
            raise self._failed("the world's process ended", self._ending()) from error
        except OverflowError as error:
            raise self._failed("the world's answer is too long", str(error)) from error
        except BaseException:  # such as Ctrl-C: an answer that nobody awaits any more would be taken for the next one
            self.end()
            raise

    def end(self, patience_s: float = 0.0) -> None:
        """Kill the process and its group; a second call does nothing.

        Args:
            patience_s: Seconds that it may take to end by itself.
        """
        if patience_s and not self.ended:
            self._wait(patience_s)
        self._end()

    def _exchange(self, request: bytes, limit_s: float) -> bytes:
        deadline = time.monotonic() + limit_s
        self._socket.settimeout(limit_s)
        self._socket.sendall(HEADER.pack(len(request)) + request)
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > LONGEST_ANSWER:
            raise OverflowError(f"{length} bytes, where at most {LONGEST_ANSWER} are read")
        return self._read(length, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        answer = bytearray(size)
        missing = memoryview(answer)
        while missing:
            self._await(deadline)
            received = self._socket.recv_into(missing)
            if not received:
                raise EOFError
            missing = missing[received:]
        return bytes(answer)

    def _await(self, deadline: float) -> None:
        """Return when something has come; meanwhile read what the world prints, so that it never waits for that."""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            ready = self._poll.poll(1000 * min(left_s, _GLANCE_S))
            if any(descriptor == self._prints for descriptor, _ in ready):
                self._listen()
            if any(descriptor != self._prints for descriptor, _ in ready):
                return
            # What it has left behind may hold the connection open.
            if not ready and self._process.poll() is not None:
                raise EOFError

    def _listen(self) -> bool:
        """Read some of what the world prints, keep its end, and tell whether there was any."""
        try:
            printed = os.read(self._prints, _READ)
        except BlockingIOError:
            return False
        if not printed:
            with contextlib.suppress(KeyError):
                self._poll.unregister(self._prints)
        self._printed = (self._printed + printed)[-_READ:]
        return bool(printed)

    def _wait(self, limit_s: float = _LAST_BREATH_S) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)

    def _ending(self) -> str:
        code = self._process.poll()
        if code is None:
            return "it closed its connection"
        return f"killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit status {code}"

    def _failed(self, what: str, got: str) -> WorldError:
        """Return the error of a process that has failed, with the last that it printed, and end it."""
        for _ in range(64):  # a child that it left behind may print for ever
            if not self._listen():
                break
        self.end()
        lines = self._printed.decode("utf-8", "replace").strip().splitlines()
        # Faulthandler's list of loaded modules is long, and says nothing.
        printed = "\n".join(line for line in lines if not line.startswith("Extension modules:"))[-_LAST_WORDS:]
        fix = "reset starts it again"
        return WorldError(what, where=self.name, got=f"{got}; it printed: {printed}" if printed else got, fix=fix)


def _end(process: subprocess.Popen[bytes], connection: socket.socket, lifeline: int, owner: int) -> None:
    connection.close()
    os.close(lifeline)
    assert process.stdout is not None
    process.stdout.close()
    if os.getpid() != owner:  # a fork of the owner, which goes on with the process
        return
    # Also where the process itself has ended: what it forked has not.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
