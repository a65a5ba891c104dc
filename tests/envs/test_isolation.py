"""A world in a process of its own: whatever it does, it costs one recorded episode, and leaves nothing behind."""

import atexit
import contextlib
import ctypes
import functools
import gc
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs import ALFWorldEngine, TextEngine, TextObservation, TokenEnv, isolation
from agentgym_tok.envs.alfworld.env import make_alfworld_engine
from agentgym_tok.envs.isolation import IsolatedEngine
from agentgym_tok.envs.world_process import WorldProcess
from agentgym_tok.errors import CloneUnsupported, ConfigError, ResetNeeded, UnknownName, WorldError
from agentgym_tok.harness import Harness
from agentgym_tok.trace import Episode, RunMeta, TraceStore, verify

CHAT = ChatFormat.builtin()
SOON_S, LONG_S = 1.5, 60.0

# No other process can import this file, as pytest has.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class MuteError(Exception):
    """Neither pickle nor print."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise ValueError("no words")


def flood_socket(message: bytes) -> None:
    """Write to each socket of this process, as a world gone mad might."""
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(file.readlink()).startswith("socket:"):
                os.write(int(file.name), message)


def die(signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)
    time.sleep(60)


def raise_(error: BaseException) -> None:
    raise error


def fork_and(then: Callable[[], object]) -> Callable[["Broken"], object]:
    def act(world: "Broken") -> object:
        if not os.fork():
            world.sign()
            time.sleep(60)
        return then()

    return act


def chatter() -> None:
    print("x" * 1_000_000)  # noqa: T201
    os.write(1, b"\xff" * 500_000)
    os.write(2, b"{}" * 500_000)


def close_input() -> None:
    sys.stdin.close()
    with contextlib.suppress(OSError):
        os.close(0)


def spin() -> None:
    while True:
        pass


# What a world may do at its second step, and what its record must say.
FATES: dict[str, tuple[Callable[["Broken"], object], str]] = {
    "sleeps": (lambda _: time.sleep(60), r"does not answer.* no answer within 1.5 s.*in step"),
    "spins": (lambda _: spin(), r"does not answer.*in spin"),
    "spins in C": (lambda _: re.match(r"(a*)*b", "a" * 40), r"does not answer.*Aborted"),
    "raises": (lambda _: raise_(ValueError("a broken door")), "the world raised an error.*ValueError: a broken door"),
    "raises what is mute": (lambda _: raise_(MuteError()), "MuteError: .its words raise ValueError"),
    "says 100 MB": (lambda _: ("x" * 100_000_000, 0.0, False, False, {}), "text is too long.*100000000 characters"),
    "informs of 20 MB": (lambda _: ("x", 0.0, False, False, {"x": ["x" * 1_000_000] * 20}), "answer is too long"),
    "raises 100 MB": (lambda _: raise_(ValueError("x" * 100_000_000)), "ValueError: xxx"),
    "exits": (lambda _: os._exit(3), "process ended.*exit status 3"),
    "calls sys.exit": (lambda _: sys.exit("enough"), "process ended.*exit status 1; it printed: enough"),
    "kills itself": (lambda _: die(signal.SIGKILL), r"process ended.*killed by signal 9 \(Killed\)"),
    "crashes": (lambda _: ctypes.string_at(0), "killed by signal 11 .*Fatal Python error: Segmentation fault"),
    "forks and exits": (fork_and(lambda: os._exit(4)), "exit status 4"),
    "forks and sleeps": (fork_and(lambda: time.sleep(60)), "does not answer"),
    "closes all files": (lambda _: os.closerange(0, 1000), "process ended"),
    "says no text": (lambda _: (7, 0.0, False, False, {}), "no text; .*got: int"),
    "says too little": (lambda _: ("x", 0.0), "not enough values"),
    "rewards with text": (lambda _: ("x", "much", False, False, {}), "could not convert"),
    "rewards with NaN": (lambda _: ("x", math.nan, False, False, {}), "the reward is no number"),
    "informs of nothing": (lambda _: ("x", 0.0, False, False, None), "NoneType"),
    "writes no answer": (lambda _: flood_socket(b"\0\0\0\0\0\0\0\2hi"), "its answer has a wrong type"),
    "writes a length": (lambda _: flood_socket(b"\xff" * 8), "too long"),
}
HARMLESS: dict[str, Callable[["Broken"], object]] = {
    "plays": lambda _: None,
    "prints": lambda _: chatter(),
    "closes its input": lambda _: close_input(),
    "forks": fork_and(lambda: None),
}
FATE_NAMES = [*FATES, *HARMLESS]


class Broken(gym.Env[str, str]):
    """Task n meets the n-th fate at its second step, and is won at its third."""

    observation_space = action_space = gym.spaces.Text(1000)

    def __init__(self, pids: Path) -> None:
        self.pids = pids
        self.sign()

    def sign(self) -> None:
        (self.pids / str(os.getpid())).touch()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert seed is not None
        self.fate = FATE_NAMES[seed]
        self.steps = 0
        return f"it {self.fate}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 2:
            if self.fate in FATES:
                return FATES[self.fate][0](self)  # type: ignore[return-value]
            HARMLESS[self.fate](self)
        won = self.steps == 3
        return "on", float(won), won, False, {"success": won}


def running(pids: Path) -> list[str]:
    """Return those of the processes that still run; a zombie that waits for its reaper does not."""
    found = []
    for file in pids.iterdir():
        try:
            state = Path("/proc", file.name, "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.append(file.name)
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def child_processes() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def soon(condition: Callable[[], bool]) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def say_go(_: object) -> Any:
    return CHAT.encode_turn("<action>go</action>")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Episode]:
    """Play every fate, the harmless ones among them, and check what is left of it."""
    run, pids = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("pids")
    gc.collect()  # what earlier tests of this process left open
    files, children = open_files(), child_processes()
    hanging = [fate for fate in FATES if "does not answer" in FATES[fate][1]]
    others = [fate for fate in FATE_NAMES if fate not in hanging]
    found: dict[str, Episode] = {}
    meta = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat="builtin")
    with TraceStore(run, meta=meta) as store:
        harness = Harness(say_go, CHAT, store=store)
        # Only what never answers needs a short limit: a slow machine is no failure.
        for fates, limit_s in ((hanging, SOON_S), (others, LONG_S)):
            make_env = functools.partial(TokenEnv, functools.partial(Broken, pids), CHAT, world_timeout_s=limit_s)
            episodes = harness.run_many(make_env, [FATE_NAMES.index(fate) for fate in fates], concurrency=2)
            found |= zip(fates, episodes, strict=True)
        stored = {episode.head.id: episode.status for episode in store.episodes()}
    assert stored == {episode.head.id: episode.status for episode in found.values()}
    assert verify(run, CHAT).ok
    del store, harness
    gc.collect()
    assert len(list(pids.iterdir())) > 10
    assert soon(lambda: not running(pids))
    assert (open_files(), child_processes()) == (files, children)
    return found


@pytest.mark.parametrize("fate", FATES)
def test_a_world_that_fails_is_one_recorded_episode(played: dict[str, Episode], fate: str) -> None:
    episode = played[fate]
    assert episode.status == "failed"
    assert episode.failure is not None
    assert episode.failure.boundary == "world"
    assert re.search(FATES[fate][1], episode.failure.message, re.DOTALL), episode.failure.message
    assert len(episode.failure.message) < 5_000
    assert len(episode.turns) == 2


@pytest.mark.parametrize("fate", HARMLESS)
def test_the_other_episodes_go_on(played: dict[str, Episode], fate: str) -> None:
    episode = played[fate]
    assert (episode.status, episode.success, episode.return_, len(episode.turns)) == ("done", True, 1.0, 3)


# What no observation may be.
WRONG_ANSWERS: dict[str, tuple[Any, str]] = {
    "text": ("text", "no observation; .*got: str"),
    "bytes": (TextObservation(b"bytes"), "TypeError: .*bytes"),  # type: ignore[arg-type]
    "none": (TextObservation(None), "text of its observation has a wrong type; .*got: NoneType"),  # type: ignore[arg-type]
    "reward": (TextObservation("x", "1"), "reward .*got: str '1'; expected: float"),  # type: ignore[arg-type]
    "huge": (TextObservation("x", 10**400), "OverflowError"),
    "success": (TextObservation("x", success="yes"), "success .*expected: bool or NoneType"),  # type: ignore[arg-type]
    "over": (TextObservation("x", terminated=1), "terminated .*got: int 1"),  # type: ignore[arg-type]
    "commands": (TextObservation("x", admissible_commands=(1,)), "admissible_commands .*texts"),  # type: ignore[arg-type]
    "facts": (TextObservation("x", facts=()), "facts .*got: list"),  # type: ignore[arg-type]
}


class Small:
    """A text engine whose answers are what the command says."""

    def __init__(self, folder: Path | None = None, source: str = "small") -> None:
        self.source = source
        self.folder = folder

    def tasks(self) -> Sequence[str]:
        return ("first", "second")

    def reset(self, task: str | None = None) -> TextObservation:
        self.task: Any = 7 if task == "wrong" else task or "first"
        if self.task not in (7, *self.tasks()):
            raise UnknownName("no such task", got=self.task, fix="take another")
        return TextObservation("\ud800 \U0001f600", facts={"pid": os.getpid()})

    def step(self, command: str) -> TextObservation:
        if command == "hang":
            time.sleep(60)
        if command == "end":
            raise ResetNeeded("it is over", where="small")
        self.command: Any = command
        if command in WRONG_ANSWERS:
            self.command = []
            return cast("TextObservation", WRONG_ANSWERS[command][0])
        return TextObservation(
            command,
            np.float32(0.5),  # type: ignore[arg-type]
            success=None,
            valid=np.bool_(True),  # type: ignore[arg-type]
            admissible_commands=("a", "b"),
            facts={"array": np.arange(3), 7: ({"deep": (1, None)},), "object": Small},  # type: ignore[dict-item]
        )

    def clone(self) -> "Small":
        return Small()

    def task_info(self) -> dict[str, Any]:
        return {"task": self.task, "goal": "none"}

    def expert_command(self) -> str | None:
        return cast("str", self.command)

    def close(self) -> None:
        if self.folder is not None:
            (self.folder / "closed").touch()
            atexit.register((self.folder / "ended").touch)


@pytest.fixture(scope="module")
def small() -> Iterator[IsolatedEngine]:
    engine = IsolatedEngine(Small)
    yield engine
    engine.close()


def pid(engine: IsolatedEngine) -> int:
    return int(engine.reset().facts["pid"])


def test_what_a_world_says_arrives(small: IsolatedEngine) -> None:
    assert isinstance(small, TextEngine)
    assert (small.source, small.tasks()) == ("small", ("first", "second"))
    assert small.reset("second").text == "\ud800 \U0001f600"
    assert small.task_info() == {"task": "second", "goal": "none"}
    said = "\udfff\U0001f600\0 " + "long " * 200_000
    observation = small.step(said)
    facts = {"array": [0, 1, 2], "7": [{"deep": [1, None]}], "object": observation.facts["object"]}
    assert observation == TextObservation(
        said, 0.5, success=None, valid=True, admissible_commands=("a", "b"), facts=facts
    )
    assert "Small" in observation.facts["object"]
    assert small.expert_command() == said


def test_errors_of_the_library_stay_what_they_are_and_the_process_goes_on(small: IsolatedEngine) -> None:
    before = pid(small)
    with pytest.raises(UnknownName, match="got: third; next: take another"):
        small.reset("third")
    with pytest.raises(ResetNeeded, match="over"):
        small.step("end")
    with pytest.raises(WorldError, match="got: AttributeError") as caught:
        IsolatedEngine(Small).expert_command()
    assert "in expert_command" in caught.value.__notes__[0]
    assert pid(small) == before


def test_a_process_that_ended_is_started_at_the_next_reset_and_not_before(
    small: IsolatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pid(small)
    with monkeypatch.context() as patch:
        patch.setattr(small, "_timeout_s", 0.2)
        with pytest.raises(WorldError, match="does not answer"):
            small.step("hang")
    for call in (lambda: small.step("x"), small.expert_command):
        with pytest.raises(ResetNeeded, match="process has ended"):
            call()
    assert pid(small) != before
    assert small.step("x").text == "x"


def test_a_process_that_dies_between_two_calls_costs_an_episode_only_in_mid_episode(small: IsolatedEngine) -> None:
    os.kill(pid(small), signal.SIGKILL)
    with pytest.raises(WorldError, match="signal 9"):
        small.step("x")
    before = pid(small)
    small.step("win")
    os.kill(before, signal.SIGKILL)
    assert soon(lambda: not small._process.alive)
    assert pid(small) != before


def test_an_interrupt_ends_the_process_that_was_asked(small: IsolatedEngine) -> None:
    before = pid(small)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            small.step("hang")
    finally:
        signal.signal(signal.SIGALRM, old)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert pid(small) != before


def test_answers_of_wrong_types_are_named_and_the_process_goes_on(small: IsolatedEngine) -> None:
    before = pid(small)
    for command, (_, message) in WRONG_ANSWERS.items():
        with pytest.raises(WorldError, match=message):
            small.step(command)
    with pytest.raises(WorldError, match=r"expert_command.. has a wrong type; where: small; got: list"):
        small.expert_command()
    with pytest.raises(WorldError, match=r"task_info.. has a wrong type; where: small; got: dict .'task': 7"):
        small.reset("wrong")
    assert pid(small) == before


def test_closing_lets_the_world_close_itself(tmp_path: Path) -> None:
    engine = IsolatedEngine(functools.partial(Small, tmp_path))
    process = pid(engine)
    engine.close()
    engine.close()
    assert {file.name for file in tmp_path.iterdir()} == {"closed", "ended"}
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_an_engine_that_nobody_holds_any_more_leaves_no_process() -> None:
    engine = IsolatedEngine(Small)
    process = pid(engine)
    del engine
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_process_outlives_the_thread_that_started_it(small: IsolatedEngine) -> None:
    os.kill(pid(small), signal.SIGKILL)
    assert soon(lambda: not small._process.alive)
    thread = threading.Thread(target=small.reset)
    thread.start()
    thread.join()
    assert small.step("x").text == "x"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_of_the_parent_does_not_end_the_process(small: IsolatedEngine) -> None:
    small.reset()
    fork = os.fork()
    if not fork:
        small._process.end()
        os._exit(0)
    os.waitpid(fork, 0)
    assert small.step("x").text == "x"


def test_it_cannot_be_copied(small: IsolatedEngine) -> None:
    for copy in (small.clone, small.__reduce__):
        with pytest.raises(CloneUnsupported, match="isolation='none'"):
            copy()


@pytest.mark.parametrize("ask", ["while True: pass", "re.match('(a*)*b', 'a' * 40)"])
def test_a_parent_that_is_killed_leaves_no_process(tmp_path: Path, ask: str) -> None:
    script = f"""
import os, re
from pathlib import Path
from agentgym_tok.envs.isolation import IsolatedEngine

def make():
    os.fork()
    Path({str(tmp_path)!r}, str(os.getpid())).touch()
    {ask}

IsolatedEngine(make)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        assert soon(lambda: len(running(tmp_path)) == 2)
    finally:
        parent.kill()
        parent.wait()
    assert soon(lambda: not running(tmp_path))


def engine_of(world: Any, **options: Any) -> TextEngine:
    env = TokenEnv(world, CHAT, **options)
    env.close()
    return env.engine


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what would have been isolated; no process starts."""
    asked: list[object] = []

    def engine(make: object, _: float) -> Small:
        asked.append(make)
        return Small()

    monkeypatch.setattr(isolation, "IsolatedEngine", engine)
    return asked


@pytest.mark.parametrize("world", [Small, lambda: Small(None), functools.partial(Small, source="x")])
def test_what_makes_a_foreign_world_is_isolated_by_default(isolated: list[object], world: Any) -> None:
    engine_of(world)
    assert isolated == [world]
    assert isinstance(engine_of(world, isolation="none"), Small)
    assert isolated == [world]


def test_an_instance_is_isolated_on_request_only(isolated: list[object]) -> None:
    world = Small()
    assert engine_of(world) is world
    assert not isolated
    engine_of(world, isolation="process")
    (make,) = isolated
    assert callable(make)
    assert make() is world


def test_what_makes_a_world_of_the_library_stays_in_this_process(isolated: list[object]) -> None:
    assert isinstance(engine_of(functools.partial(make_alfworld_engine, split="valid_seen")), ALFWorldEngine)
    assert not isolated


def test_a_registered_world_plays_in_its_process(tmp_path: Path) -> None:
    gym.register("Foreign-v1", functools.partial(Broken, tmp_path))
    try:
        env = TokenEnv("Foreign-v1", CHAT)
    finally:
        del gym.registry["Foreign-v1"]
    episode = Harness(say_go, CHAT).run(env, task=FATE_NAMES.index("plays"))
    env.close()
    assert (episode.head.source, episode.success) == ("Foreign-v1", True)
    assert {file.name for file in tmp_path.iterdir()}.isdisjoint({str(os.getpid())})


def test_what_cannot_work_is_refused_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent.*functools\.partial"):
        TokenEnv(Small(lock), CHAT, isolation="process")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no world"):
        TokenEnv(dict, CHAT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no world"):
        TokenEnv(7, CHAT, isolation="process")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="did you mean process"):
        TokenEnv(Small, CHAT, isolation="proces")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="registered"):
        TokenEnv("NoSuchWorld-v0", CHAT)
    with pytest.raises(ConfigError, match="world_timeout_s"):
        TokenEnv(Small, CHAT, world_timeout_s=0)
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(ConfigError, match="POSIX"):
        TokenEnv(Small, CHAT, isolation="process")
    assert isinstance(engine_of(Small), Small)


def test_a_world_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorldError, match="ZeroDivisionError"):
        IsolatedEngine(lambda: 1 // 0)
    with pytest.raises(WorldError, match=r"source and tasks\(\) has a wrong type"):
        IsolatedEngine(functools.partial(Small, source=1))  # type: ignore[arg-type]
    monkeypatch.setattr(isolation, "_START_S", 0.5)
    with pytest.raises(WorldError, match="does not answer"):
        IsolatedEngine(lambda: time.sleep(60), SOON_S)


def test_a_process_that_is_not_asked_answers_nothing() -> None:
    process = WorldProcess("world")
    assert process.alive
    process.end()
    process.end()
    assert not process.alive
