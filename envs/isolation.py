"""A world in a process of its own: one that hangs, dies or floods costs an episode, and nothing else."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

import cloudpickle

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.world_process import WorldProcess
from agentgym_tok.envs.world_worker import ERROR_PARTS, pack, unpack
from agentgym_tok.errors import (
    AgentGymTokError,
    CloneUnsupported,
    ConfigError,
    DataMissing,
    MissingExtra,
    ResetNeeded,
    UnknownName,
    WorldError,
)

__all__ = ["IsolatedEngine"]

_START_S = 60.0
_CLOSE_S = 5.0
_EXIT_S = 1.0

_OPTIONAL_BOOL = (bool, type(None))
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "reward": (float,),
    "terminated": (bool,),
    "success": _OPTIONAL_BOOL,
    "valid": _OPTIONAL_BOOL,
    "admissible_commands": (list,),
    "truncated": (bool,),
    "facts": (dict,),
}

# An error of these stays what it is; whatever else a world raises is a WorldError.
_OURS = {kind.__name__: kind for kind in (ConfigError, DataMissing, MissingExtra, ResetNeeded, UnknownName)}


class IsolatedEngine:
    """Play a world that runs in a process of its own.

    Where an answer does not come in time or is too long the process is killed. The error says so, or how the process
    ended by itself, with the last that it printed; the next `reset` starts another. An error that the world raises is
    raised here too, as a `WorldError` with the world's traceback as a note, and so is an answer of wrong types.

    Of `facts` and `task_info` arrives what JSON can hold: arrays as lists, other objects as their `repr`.

    Args:
        make: Makes the world, a `TextEngine` or a Gymnasium environment of strings. It is pickled by `cloudpickle`:
            lambdas and classes of a notebook will do.
        timeout_s: Seconds until each answer must be there. Starting may take a minute, or this, if it is longer.

    Raises:
        ConfigError: `make` cannot be pickled, or makes no world.
        WorldError: The world could not be made.
    """

    blocking = True
    """Harnesses call it in a thread, so that other episodes go on."""

    def __init__(self, make: Callable[[], object], timeout_s: float = 60.0) -> None:
        self._make = _pickled(make)
        self._timeout_s = timeout_s
        self._tasks: tuple[str, ...] = ()
        self._task_info: Mapping[str, Any] | None = None
        self.source = repr(make)[:200]
        self._process = self._start()

    def tasks(self) -> Sequence[str]:
        """Return the ids of all tasks, as the world gave them when it started."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Start a task, in a new process if the last one has ended.

        Raises:
            UnknownName: No task has this id.
            WorldError: The world failed, or its process did.
        """
        if not self._process.alive:
            self._process.end()
            self._process = self._start()
        answer = self._ask("reset", task)
        task_info = answer.get("task")
        if type(task_info) is not dict or type(task_info.get("task")) is not str:
            raise self._wrong("task_info()", task_info, "a mapping with the task's id as 'task'")
        self._task_info = task_info
        return self._observation(answer)

    def step(self, command: str) -> TextObservation:
        """Give the world one command.

        Raises:
            ResetNeeded: No episode is running, or its process has ended.
            WorldError: The world failed, or its process did.
        """
        return self._observation(self._ask("step", command))

    def clone(self) -> NoReturn:
        """Refuse: what a process holds cannot be copied.

        Raises:
            CloneUnsupported: Always.
        """
        raise CloneUnsupported(
            "a world in a process of its own cannot be copied",
            where=self.source,
            fix="reset another one and give it the same commands, or pass isolation='none'",
        )

    def __reduce__(self) -> NoReturn:
        self.clone()

    def task_info(self) -> Mapping[str, Any]:
        """Return the facts of the running task.

        Raises:
            ResetNeeded: No task was started yet.
        """
        if self._task_info is None:
            raise ResetNeeded("no task was started yet", where=self.source, fix="call reset")
        return self._task_info

    def expert_command(self) -> str | None:
        """Return the next command of the world's own expert.

        Raises:
            ResetNeeded: The process has ended.
            WorldError: The world failed, or its process did.
        """
        command = self._ask("expert_command").get("command")
        if command is not None and type(command) is not str:
            raise self._wrong("expert_command()", command, "str or None")
        return command

    def close(self) -> None:
        """Let the world close itself, for some seconds, and end its process."""
        if self._process.alive:
            with contextlib.suppress(WorldError):  # it ends now, one way or the other
                self._process.ask(pack({"call": "close"}), min(self._timeout_s, _CLOSE_S))
        self._process.end(_EXIT_S)

    def _start(self) -> WorldProcess:
        process = WorldProcess(self.source)
        hello = self._read(process, process.ask(self._make, max(self._timeout_s, _START_S)))
        source, tasks = hello.get("source"), hello.get("tasks")
        if type(source) is not str or not _texts(tasks):
            process.end()
            raise self._wrong("source and tasks()", [source, tasks], "a str, and a list of str")
        self.source, self._tasks = source, tuple(tasks)
        process.name = source
        return process

    def _ask(self, call: str, text: str | None = None) -> dict[str, Any]:
        if self._process.ended:
            raise ResetNeeded(
                "no episode is running", where=self.source, got="a world whose process has ended", fix="call reset"
            )
        request = pack({"call": call, "text": text})
        return self._read(self._process, self._process.ask(request, self._timeout_s))

    def _read(self, process: WorldProcess, answer: bytes) -> dict[str, Any]:
        """Return what the world said, or raise what it raised."""
        try:
            message = unpack(answer)
        except (ValueError, RecursionError):
            message = None
        said: Mapping[str, object] = message if type(message) is dict else {}
        answered = said.get("ok")
        if isinstance(answered, dict):
            return answered
        error = _error(said.get("error"), self.source)
        if error is None:  # the world has written to the connection: what comes next is no answer either
            process.end()
            error = self._wrong("its answer", message, "what the other end of the connection writes")
        raise error

    def _observation(self, answer: dict[str, Any]) -> TextObservation:
        said = answer.get("observation")
        if type(said) is not dict or said.keys() != _FIELDS.keys():
            raise self._wrong("its observation", said, ", ".join(_FIELDS))
        for name, kinds in _FIELDS.items():
            if type(said[name]) not in kinds:
                expected = " or ".join(kind.__name__ for kind in kinds)
                raise self._wrong(f"{name} of its observation", said[name], expected)
        commands = said["admissible_commands"]
        if not _texts(commands):
            raise self._wrong("admissible_commands of its observation", commands, "texts")
        return TextObservation(**{**said, "admissible_commands": tuple(commands)})

    def _wrong(self, part: str, got: object, expected: str) -> WorldError:
        """Return the error of a world that says what no world may say."""
        got = f"{type(got).__name__} {repr(got)[:200]}"
        return WorldError(f"{part} has a wrong type", where=self.source, got=got, expected=expected)


def _texts(value: object) -> TypeGuard[list[str]]:
    return type(value) is list and all(type(text) is str for text in value)


def _error(said: object, source: str) -> AgentGymTokError | None:
    """Return the error that a world raised; None where this tells of none."""
    if type(said) is not dict:
        return None
    parts, trace = said.get("parts"), said.get("traceback")
    if type(parts) is not dict or not {"what"} <= parts.keys() <= {*ERROR_PARTS} or type(trace) is not str:
        return None
    kind = _OURS.get(str(said.get("class")), WorldError)
    error = kind(**{"where": source, **parts})
    if trace:
        error.add_note(f"In the world's process:\n{trace}")
    return error


def _pickled(make: Callable[[], object]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(make))
    except Exception as error:
        raise ConfigError(
            "this world cannot be sent to a process of its own",
            where="TokenEnv: world",
            got=f"{type(error).__name__}: {error}",
            expected="what makes the world: a class, a function or functools.partial that pickles",
            fix="pass functools.partial(make_my_world, option=...), or isolation='none'",
        ) from error
