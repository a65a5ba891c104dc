"""What the store does when the operating system refuses a call, for every call that it makes."""

import errno
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.trace import TraceStore, verify

# The kinds of calls, as in faults.c.
OPEN, WRITE, SYNC, RESIZE, UNLINK, MKDIR, MAP, READ = (1 << place for place in range(8))

# Which calls can fail so.
FAULTS = {
    "ENOSPC": OPEN | WRITE | SYNC | RESIZE | MKDIR,
    "EIO": OPEN | WRITE | SYNC | RESIZE | UNLINK | MKDIR | MAP | READ,
    "EROFS": OPEN | WRITE | RESIZE | UNLINK | MKDIR,
    "EACCES": OPEN | UNLINK | MKDIR,
    "EMFILE": OPEN,
    "ENOMEM": MAP,
}


@pytest.fixture(scope="session")
def child(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a process whose system calls can be made to fail."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("system calls are made to fail on Linux, with a C compiler: install gcc")
    source, library = Path(__file__).with_name("faults.c"), tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    with make.child(LD_PRELOAD=str(library)) as process:
        yield process


@pytest.fixture(scope="session")
def beginnings(make: Any, child: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return runs to go on with: one that is not there, one that was closed, and one whose writer was killed."""
    folder = tmp_path_factory.mktemp("beginnings")
    for name, end in (("closed", "close"), ("killed", "kill")):
        *_, last = child.write(folder / name, ["before"], end=end)
        assert (last["status"] == signal.SIGKILL) == (end == "kill")
    assert (folder / "killed" / "shards" / "main.sqlite-wal").exists()
    return {name: folder / name for name in ("new", "closed", "killed")}


@dataclass
class Play:
    """Tell the story `now` to a run that holds a beginning, while the system fails."""

    make: Any
    child: Any
    beginning: Path
    folder: Path

    def __post_init__(self) -> None:
        self.before = self.make.story("before") if self.beginning.exists() else []
        self.now = self.make.story("now")

    def calls(self, kinds: int, error: int = 0) -> int:
        """Count the calls that can fail."""
        return self.through(self.fault(kinds, 0, error))["calls"]

    @staticmethod
    def fault(
        kinds: int, nth: int, error: int, *, forever: bool = False, half: bool = False, deadly: bool = False
    ) -> dict[str, int]:
        return {"kinds": kinds, "nth": nth, "error": error, "forever": forever, "half": half, "deadly": deadly}

    def run(self) -> Path:
        run = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        if self.beginning.exists():
            shutil.copytree(self.beginning, run)
        return run

    def through(self, fault: dict[str, int]) -> dict[str, int]:
        """Write through a fault that passes, and check what is there: after it, and in the end."""
        run = self.run()
        then, done, failures = run.with_name("then"), 0, 0
        counted: dict[str, int] = {}
        for said in self.child.write(run, ["now"], checkpoint=8, fault=fault):
            if said.get("done") == "step":
                done += 1
            elif "failed" in said:
                failures += 1
                assert failures < 6, f"it fails for ever: {fault}, {said}"
                if failures == 1 and run.exists():
                    shutil.copytree(run, then)
                    self.goes_on(then, done)
                self.child.tell("again" if failures < 3 else "repair")
            elif "calls" in said:
                counted = said
        assert said["status"] == 0, f"no error of ours: {fault}"
        self.holds(run, len(self.now))
        assert verify(run).ok, fault
        shutil.rmtree(run.parent)
        return counted

    def killed(self, fault: dict[str, int]) -> None:
        """Write until the system kills the writer in a call, and check what is there."""
        run, done = self.run(), 0
        for said in self.child.write(run, ["now"], checkpoint=8, fault=fault):
            assert "failed" not in said, said
            done += said.get("done") == "step"
        assert said["status"] == signal.SIGKILL, fault
        self.goes_on(run, done)
        shutil.rmtree(run.parent)

    def errors(self, fault: dict[str, int]) -> list[str]:
        """Return what a writer raises until the fault passes."""
        run, errors = self.run(), []
        for said in self.child.write(run, ["now"], fault=fault):
            if "failed" in said:
                errors.append(said["failed"])
                self.child.tell("again" if len(errors) < 3 else "repair")
        return errors

    def holds(self, run: Path, *done: int) -> None:
        states = [self.make.told([*self.before, *self.now[:steps]]) for steps in done]
        found = self.make.read(run)
        assert any(self.make.same_episodes(found, state) for state in states), done

    def goes_on(self, run: Path, done: int) -> None:
        """Check that a run holds what was done, and write the rest to it in another process."""
        # The step in flight may be there, whole: its commit was written, and what failed came after it.
        self.holds(run, done, done + 1)
        with TraceStore(run, meta=self.make.meta) as store:
            for method, *arguments in self.now[done:]:
                getattr(store, method)(*arguments)
        self.holds(run, len(self.now))
        assert verify(run).ok


@pytest.fixture(params=["new", "closed", "killed"])
def play(request: Any, make: Any, child: Any, beginnings: dict[str, Path], tmp_path: Path) -> Play:
    return Play(make, child, beginnings[request.param], tmp_path)


def spread(total: int, few: int, seed: str) -> list[int]:
    """Choose calls all over the writer's life; 0 means all of them, and so does a handful."""
    if not few or total <= 3 * few:
        return list(range(1, total + 1))
    rng = random.Random(seed)
    return [rng.randrange(place * total // few, (place + 1) * total // few) + 1 for place in range(few)]


FEW = [4, pytest.param(0, marks=pytest.mark.deep)]


@pytest.mark.parametrize("few", FEW)
@pytest.mark.parametrize("name", FAULTS)
def test_whatever_call_fails_it_is_our_error_and_only_the_step_in_flight_is_open(
    play: Play, name: str, few: int
) -> None:
    kinds, error = FAULTS[name], getattr(errno, name)
    for nth in spread(play.calls(kinds, error), few, name):
        # Once; or for ever, as on a disk that is full or gone.
        for forever in (False, True):
            counted = play.through(play.fault(kinds, nth, error, forever=forever, half=forever))
            assert counted["fired"], nth


@pytest.mark.parametrize("few", FEW)
def test_a_kill_in_any_call_costs_at_most_the_step_in_flight(play: Play, few: int) -> None:
    kinds = OPEN | WRITE | SYNC | RESIZE | UNLINK | MKDIR | MAP
    for nth in spread(play.calls(kinds), 3 * few, "kill"):
        for half in (False, True):
            play.killed(play.fault(kinds, nth, 0, half=half, deadly=True))


def read(play: Play, fault: dict[str, int]) -> tuple[dict[str, Any], int]:
    """Read a run while the system fails; return what was said and how often it failed."""
    heard: dict[str, Any] = {}
    failures = 0
    for said in play.child.read(play.beginning, fault):
        if "failed" in said:
            failures += 1
            play.child.tell("again" if failures < 3 else "repair")
        heard |= said
    assert heard["status"] == 0, "no error of ours"
    return heard, failures


@pytest.mark.parametrize("name", ["EIO", "EMFILE"])
@pytest.mark.parametrize("few", FEW)
def test_a_call_that_fails_while_reading_is_our_error_and_hides_nothing(play: Play, name: str, few: int) -> None:
    if not play.beginning.exists():
        return
    kinds, error, turns = FAULTS[name], getattr(errno, name), sum(step[0] == "append" for step in play.before)
    whole, _ = read(play, play.fault(kinds, 0, error))
    for nth in spread(whole["calls"], 2 * few, name):
        for forever in (False, True):
            heard, _ = read(play, play.fault(kinds, nth, error, forever=forever))
            assert heard["fired"], nth
            assert heard["read"] == turns, nth
            # Verification may take a failing disk for damage, never a part for the whole.
            assert not heard["ok"] or heard["turns"] == turns, nth


def test_a_read_only_disk_is_read_and_not_written(play: Play) -> None:
    fault = play.fault(FAULTS["EROFS"], 1, errno.EROFS, forever=True)
    errors = play.errors(fault)
    assert len(errors) == 3
    assert all(error.startswith("TraceError: ") and "Read-only file system" in error for error in errors), errors
    if play.beginning.name == "closed":
        heard, failures = read(play, fault)
        assert (heard["ok"], heard["turns"], failures) == (True, 5, 0)
