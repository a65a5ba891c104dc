"""Write to a store for the tests, which kill this process or break its disk, and hear by a pipe how far it came."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Make

from agentgym_tok.errors import AgentGymTokError
from agentgym_tok.trace import TraceStore, shard, verify


def say(**parts: Any) -> None:
    # One write of less than a page is never torn, whenever the writer dies.
    os.write(1, json.dumps(parts).encode() + b"\n")


def until_done(act: Callable[[], Any]) -> Any:
    """Try, report our errors and try again when told to; whatever else is raised ends the process."""
    while True:
        try:
            return act()
        except AgentGymTokError as error:
            say(failed=f"{type(error).__name__}: {error}")
        match sys.stdin.readline():
            case "repair\n":
                ctypes.CDLL(None).faults_disarm()
            case "":
                raise SystemExit("nobody answers")


def arm(run: str, fault: dict[str, Any]) -> None:
    order = ("kinds", "nth", "error", "forever", "half", "deadly")
    ctypes.CDLL(None).faults_arm(os.fsencode(Path(run).resolve()), *(fault[name] for name in order))


def read(run: str, fault: dict[str, Any]) -> None:
    """Verify a run and read all of it."""
    arm(run, fault)
    proof = until_done(lambda: verify(run))
    episodes = until_done(lambda: Make.read(Path(run)))
    say(ok=proof.ok, turns=proof.turns, read=sum(len(episode.turns) for episode in episodes.values()))
    say(calls=ctypes.CDLL(None).faults_calls(), fired=ctypes.CDLL(None).faults_fired())


def write(
    run: str, names: list[str], skip: int = 0, end: str = "close", checkpoint: int = 4096, fault: Any = None
) -> None:
    """Open a store, take the steps of all stories but the first ones, and close it."""
    shard._CHECKPOINT_PAGES = checkpoint
    if fault is not None:
        arm(run, fault)
    store = until_done(lambda: TraceStore(run, meta=Make.meta, token_text=str))
    say(done="open")
    steps = [step for name in names for step in Make.story(name)]
    for method, *arguments in steps[skip:]:
        until_done(lambda: getattr(store, method)(*arguments))  # noqa: B023
        say(done="step")
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    until_done(store.close)
    say(done="close")
    if fault is not None:
        say(calls=ctypes.CDLL(None).faults_calls(), fired=ctypes.CDLL(None).faults_fired())


def main() -> None:
    """Fork a writer for each request: what it costs is a fork, not the start of a Python."""
    while request := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            act, parts = json.loads(request)
            {"read": read, "write": write}[act](**parts)
            os._exit(0)
        say(pid=pid)
        # The dead writer keeps its number until the tests have sent what they meant for it.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        say(ended=True)
        sys.stdin.readline()
        _, status = os.waitpid(pid, 0)
        say(status=status)


if __name__ == "__main__":
    main()
