"""Environments of Prime Intellect's `verifiers` as token environments.

They run in a process of their own, in an interpreter that has `verifiers`: their packages and ours need not go
together. The environment keeps its loop, its tools, its stops and its rubric. Where it would ask a model, its new
messages come here, are bridged to the ids that were sampled, and the next turn goes back as a message; nothing is
encoded twice.

Checked against verifiers 0.3.1 (`load_environment`, the classic interface) and 0.4.0 (tasksets of `verifiers.v1`).
"""

import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.adapters.conversation import Conversation, Said, Spoken, read_said
from agentgym_tok.envs.adapters.program import Program
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported, ConfigError, ResetNeeded, unknown_name
from agentgym_tok.types import Message

__all__ = ["VerifiersEngine", "VerifiersWorld"]

_SCRIPT = Path(__file__).with_name("verifiers_program.py")
_PROGRAMS: "weakref.WeakValueDictionary[tuple[Any, ...], Program]" = weakref.WeakValueDictionary()
_STARTING = threading.Lock()
_OVER = (Message("user", "The episode is over.", trusted=True),)


class VerifiersEngine:
    """Play an environment of `verifiers`; its episodes share one process.

    The reward comes with the last turn, as the environment's own rubric gives it. An episode that the environment ends
    is terminated; what it says of the end stands in `info` as `metrics` and `stop`.

    Args:
        environment: The name that `verifiers` loads: a module with `load_environment`, or a taskset.
        arguments: For `load_environment`, or the fields of the taskset's configuration.
        split: `"train"`, or `"eval"` for the other dataset of a classic environment.
        python: The interpreter that has `verifiers` and the environment; this one without it.
        tasks: How many tasks an endless taskset gives.
        timeout_s: Seconds that the environment has for each answer.
        start_s: Seconds that it has to load.

    Raises:
        UnknownName: The split has another name.
        WorldError: The environment could not be loaded.
    """

    blocking = True
    """Harnesses call it in a thread, so that other episodes go on."""

    def __init__(
        self,
        environment: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        split: str = "eval",
        python: str | None = None,
        tasks: int = 1000,
        timeout_s: float = 300.0,
        start_s: float = 300.0,
    ) -> None:
        if split not in {"train", "eval"}:
            raise unknown_name("split", split, ["train", "eval"], where="VerifiersEngine")
        self.source = f"verifiers/{environment}"
        self._load = {"environment": environment, "arguments": dict(arguments or {}), "split": split, "limit": tasks}
        self._python, self._timeout_s, self._start_s = python or sys.executable, timeout_s, start_s
        self._program = self._started()
        self._prefix = f"{environment}/{split}"
        self._tasks = tuple(f"{self._prefix}/{place}" for place in range(self._program.about["tasks"]))
        if not self._tasks:
            raise ConfigError("the environment has no tasks", where=self.source, got=f"split {split}")
        self._task = self._tasks[0]
        self._episode: int | None = None
        self._known: list[dict[str, Any]] = []

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Schemas of the tools that all tasks have."""
        tools: Sequence[Mapping[str, Any]] = self._program.about["tools"]
        return tools

    def tasks(self) -> Sequence[str]:
        """Return the rows of the split, by their places."""
        return self._tasks

    def reset(self, task: str | None = None) -> Spoken:
        """Start a task, in a new process if the last one has ended.

        Raises:
            UnknownName: No task has this id.
            WorldError: The environment failed, or ends before it has asked for a turn.
        """
        if task is not None:
            if task not in self._tasks:
                raise unknown_name("task", task, self._tasks, where=self.source)
            self._task = task
        self.close()
        if not self._program.alive:
            self._program = self._started()
        self._known = []
        self._episode = self._program.start(self._tasks.index(self._task))
        return self._hear()

    def step(self, command: str) -> Spoken:
        """Give the environment a turn: the JSON of `Said`, or plain text.

        Raises:
            ResetNeeded: No episode is running.
            WorldError: The environment failed.
        """
        if self._episode is None:
            raise ResetNeeded("no episode is running", where=self.source, fix="call reset")
        said = read_said(command)
        self._program.say(self._episode, said.message(), said.finish)
        self._known.append(said.message())
        return self._hear(said)

    def clone(self) -> NoReturn:
        """Refuse: what runs in another process cannot be copied.

        Raises:
            CloneUnsupported: Always.
        """
        raise CloneUnsupported("an environment of verifiers cannot be copied", where=self.source, fix="reset another")

    def task_info(self) -> Mapping[str, Any]:
        """Return the task's id."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Return None: these environments have no expert."""
        return None

    def close(self) -> None:
        """Leave a running episode; the process ends with its last engine."""
        if self._episode is not None:
            self._program.drop(self._episode)
        self._episode = None

    def _started(self) -> Program:
        """Return the process of this environment, which engines of equal arguments share."""
        key = (self._python, os.environ.get("PYTHONPATH"), repr(self._load))
        with _STARTING:
            program = _PROGRAMS.get(key)
            if program is None or not program.alive:
                program = Program(self.source, self._python, _SCRIPT, self._load, self._start_s)
                _PROGRAMS[key] = program
        return program

    def _hear(self, said: Said | None = None) -> Spoken:
        assert self._episode is not None
        try:
            answer = self._program.hear(self._episode, self._timeout_s)
        except BaseException:
            self.close()
            raise
        if "asks" in answer:
            return self._asked(answer["asks"]["messages"], answer["asks"]["tools"], first=said is None)
        self.close()
        if said is None:
            raise ConfigError(
                "the task ends before a turn", where=f"{self.source}, task {self._task}", got=answer["ends"]
            )
        return self._over(answer["ends"])

    def _asked(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, first: bool) -> Spoken:
        goes_on = not first and messages[: len(self._known)] == self._known
        new = messages[len(self._known) :] if goes_on else messages
        self._known = messages
        return Spoken(
            "\n".join(message["content"] for message in new),
            success=None,
            valid=None if first else True,
            messages=tuple(Message.of(message) for message in new),
            tools=tuple(tools),
            fresh=not first and not goes_on,
        )

    def _over(self, ends: Mapping[str, Any]) -> Spoken:
        threshold = self._program.about["threshold"]
        reward = float(ends["reward"])
        messages = tuple(Message.of(message) for message in ends["messages"]) or _OVER
        return Spoken(
            "\n".join(message.content for message in messages),
            reward=reward,
            terminated=True,
            success=None if threshold is None else reward >= threshold,
            valid=True,
            facts={"metrics": ends["metrics"], "stop": ends["stop"]},
            messages=messages,
        )


class VerifiersWorld(TokenEnv):
    """An environment of `verifiers`, in token ids.

    The observation is the whole context; the action is a turn as sampled. The environment's messages and tools are
    shown by the chat template as they are. Where it shows its model another past than what was said (it summarises, or
    takes reasoning out), a new conversation begins: the edge is `fresh_prompt`.

    Args:
        chat: Tokenizer and template; None takes the builtin format.
        environment: The name that `verifiers` loads.
        arguments: For `load_environment`, or the fields of the taskset's configuration.
        split: `"train"` or `"eval"`.
        python: The interpreter that has `verifiers` and the environment; this one without it.
        timeout_s: Seconds that the environment has for each answer.
        max_steps: Turns after which the episode is truncated; the environment's own end comes with its reward, this one
            without.
        max_context: Most ids of an observation.
        max_action: Most ids of an action.
        render_mode: `"ansi"` or None.

    Raises:
        UnknownName: The split has another name.
        ConfigError: The environment needs tools, and the template has no word for calls.
        WorldError: The environment could not be loaded.
    """

    def __init__(
        self,
        chat: ChatFormat | None = None,
        *,
        environment: str,
        arguments: Mapping[str, Any] | None = None,
        split: str = "eval",
        python: str | None = None,
        timeout_s: float = 300.0,
        max_steps: int = 50,
        max_context: int = 32_768,
        max_action: int = 8_192,
        render_mode: str | None = None,
    ) -> None:
        engine = VerifiersEngine(environment, arguments=arguments, split=split, python=python, timeout_s=timeout_s)
        super().__init__(
            engine,
            chat or ChatFormat.builtin(),
            Conversation(engine.tools),
            max_steps=max_steps,
            max_context=max_context,
            max_action=max_action,
            render_mode=render_mode,
        )
