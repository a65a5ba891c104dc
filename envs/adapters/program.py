"""A program in another interpreter that plays many episodes at once, told and heard line by line."""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agentgym_tok.errors import ConfigError, WorldError

__all__ = ["Program"]

_LAST_WORDS = 2_000


class Program:
    """Start a program, load its environment, and pass on what episodes say.

    The program has a session of its own and dies with this object, also when this process is killed. What it prints
    is kept for errors.

    Args:
        name: What errors call it.
        python: The interpreter that has its packages.
        script: The program.
        load: What it loads.
        start_s: Seconds that loading may take.

    Raises:
        ConfigError: The system is not POSIX.
        WorldError: It could not be started, or could not load.
    """

    def __init__(self, name: str, python: str, script: Path, load: Mapping[str, Any], start_s: float) -> None:
        if os.name != "posix":
            raise ConfigError("a program of its own needs a POSIX system", where=name, got=os.name)
        self.name = name
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the interpreter that the user names
                [python, "-P", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            fix = "name an interpreter that has the environment's packages"
            raise WorldError("the program cannot be started", where=name, got=str(error), fix=fix) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin
        self._sending = threading.Lock()
        self._episodes = itertools.count(1)
        self._answers = _Answers()
        self._printed = _Printed()
        self._end = weakref.finalize(self, _end, self._process, os.getpid())
        threading.Thread(target=self._answers.listen, args=(self._process.stdout,), daemon=True).start()
        self._reader = threading.Thread(target=self._printed.listen, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self._answers.expect(0)
        try:
            self._tell({"do": "load", **load})
            self.about: Mapping[str, Any] = self.hear(0, start_s)["loaded"]
        except BaseException:
            self.end()
            raise

    @property
    def alive(self) -> bool:
        """It can be asked."""
        return self._end.alive and self._process.poll() is None

    def start(self, task: int) -> int:
        """Begin an episode, and return its number."""
        episode = next(self._episodes)
        self._answers.expect(episode)
        self._tell({"do": "start", "episode": episode, "task": task})
        return episode

    def say(self, episode: int, message: Mapping[str, Any], finish: str) -> None:
        """Give an episode the turn that it waits for."""
        self._tell({"do": "say", "episode": episode, "message": message, "finish": finish})

    def drop(self, episode: int) -> None:
        """Leave an episode; one that is over already is left as it is."""
        self._answers.forget(episode)
        with contextlib.suppress(WorldError):
            self._tell({"do": "drop", "episode": episode})

    def hear(self, episode: int, limit_s: float) -> Mapping[str, Any]:
        """Wait for what an episode says next.

        Raises:
            WorldError: It failed, or said nothing in time, or the program ended.
        """
        try:
            answer = self._answers.of(episode, limit_s)
        except TimeoutError as error:
            what, got = "the environment does not answer", f"no answer within {limit_s:g} s"
            raise WorldError(what, where=self.name, got=got + self._last_words()) from error
        if answer is None:
            raise self._ended()
        if "failed" in answer:
            raise WorldError("the environment failed", where=self.name, got=answer["failed"])
        return answer

    def end(self) -> None:
        """Kill the program; a second call does nothing."""
        self._end()

    def _tell(self, command: Mapping[str, Any]) -> None:
        try:
            with self._sending:
                self._stdin.write(json.dumps(command) + "\n")
                self._stdin.flush()
        except (OSError, ValueError) as error:
            raise self._ended() from error

    def _ended(self) -> WorldError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._reader.join(1.0)  # its last words may still be on their way
        got = f"exit status {self._process.poll()}"
        return WorldError("the environment's program ended", where=self.name, got=got + self._last_words())

    def _last_words(self) -> str:
        printed = self._printed.text()
        return f"; it printed: {printed}" if printed else ""


class _Answers:
    """Sort the program's lines by their episodes."""

    def __init__(self) -> None:
        self._queues: dict[int, queue.SimpleQueue[Mapping[str, Any] | None]] = {}
        self._over = False

    def expect(self, episode: int) -> None:
        waiting: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._queues[episode] = waiting
        if self._over:
            waiting.put(None)

    def forget(self, episode: int) -> None:
        self._queues.pop(episode, None)

    def of(self, episode: int, limit_s: float) -> Mapping[str, Any] | None:
        """Return the next answer; None where the program has ended."""
        try:
            return self._queues[episode].get(timeout=limit_s)
        except queue.Empty:
            raise TimeoutError from None

    def listen(self, lines: IO[str]) -> None:
        try:
            with lines:
                for line in lines:
                    answer = json.loads(line)
                    waiting = self._queues.get(answer["episode"])
                    if waiting is not None:
                        waiting.put(answer)
        finally:  # at its end, and where it writes what is no answer
            self._over = True
            for waiting in list(self._queues.values()):
                waiting.put(None)


class _Printed:
    """Keep the end of what the program prints."""

    def __init__(self) -> None:
        self._end = ""

    def listen(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._end = (self._end + line)[-_LAST_WORDS:]

    def text(self) -> str:
        return self._end.strip()


def _end(process: "subprocess.Popen[str]", owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner, which goes on with the program
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    # The other two are closed by the threads that read them to their ends.
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
