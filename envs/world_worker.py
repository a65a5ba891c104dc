"""The other end of `WorldProcess`: it makes a world and does what it is asked, until its parent is gone.

It answers in JSON only: nothing that a world says is ever unpickled, and so run, in the parent.
"""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import traceback
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import cloudpickle
import numpy as np

from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.gym_text import as_engine
from agentgym_tok.errors import AgentGymTokError, WorldError

__all__ = ["ERROR_PARTS", "HEADER", "LONGEST_ANSWER", "main", "pack", "unpack"]

HEADER = struct.Struct("!Q")
"""Stands before each message: its length in bytes."""

LONGEST_ANSWER = 8 * 2**20
"""Most bytes of an answer."""

ERROR_PARTS = ("what", "where", "got", "expected", "fix")
"""What an answer tells of an error."""

_LONGEST_WORDS = 2_000
_LONGEST_TRACEBACK = 8_000


def main(connection: int, lifeline: int) -> None:
    """Serve one world.

    Args:
        connection: File descriptor of the socket on which the parent asks.
        lifeline: File descriptor of a pipe that nobody writes to, and that is open for as long as the parent lives.
    """
    _die_with_parent(lifeline)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # a world that crashes is no reason to fill the disk
    channel = socket.socket(fileno=connection)
    channel.set_inheritable(False)
    # What the world forks must not hold the connection: its end tells the parent that this process has died.
    os.register_at_fork(after_in_child=channel.close)
    make = _receive(channel)
    try:
        engine = as_engine(cloudpickle.loads(make)())  # written by the parent
        hello = pack({"ok": {"source": engine.source, "tasks": list(engine.tasks())}})
    except Exception as error:  # noqa: BLE001  # whatever a world raises is an answer
        return _send(channel, _failure(error))
    _send(channel, hello)
    request: dict[str, Any] = {"call": ""}
    while request["call"] != "close":
        request = unpack(_receive(channel))
        _send(channel, _answer(engine, **request))
    return None


def pack(message: Any) -> bytes:
    """Write a message. Lone surrogates pass: what becomes of them is the chat format's business."""
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unpack(message: bytes) -> Any:
    """Read a message.

    Raises:
        ValueError: It is none.
    """
    return json.loads(message.decode("utf-8", "surrogatepass"))


def _die_with_parent(lifeline: int) -> None:
    """Let the kernel kill this process and what it forked when the parent ends, even while the world never returns.

    PR_SET_PDEATHSIG would look simpler, but fires when the parent's thread ends that started this process.
    """
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):  # Linux; elsewhere a world that hangs outlives a parent that is killed
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    gone = select.poll()
    gone.register(lifeline, 0)
    if gone.poll(0):  # it ended too early for a signal
        raise SystemExit


def _receive(channel: socket.socket) -> bytes:
    (length,) = HEADER.unpack(_read(channel, HEADER.size))
    return _read(channel, length)


def _read(channel: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = channel.recv(size - len(read))
        if not part:  # the parent is gone
            raise SystemExit
        read += part
    return read


def _send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(HEADER.pack(len(message)) + message)


def _answer(engine: TextEngine, call: str, text: str | None = None) -> bytes:
    try:
        return pack({"ok": _do(engine, call, text)})
    except Exception as error:  # noqa: BLE001  # whatever a world raises is an answer
        return _failure(error)


def _do(engine: TextEngine, call: str, text: str | None) -> dict[str, Any]:
    match call:
        case "reset":
            return {"observation": _observation(engine.reset(text)), "task": _plain(engine.task_info())}
        case "step":
            return {"observation": _observation(engine.step(text or ""))}
        case "expert_command":
            return {"command": engine.expert_command()}
        case _:
            getattr(engine, "close", lambda: None)()
            return {}


def _observation(observation: object) -> dict[str, Any]:
    if not isinstance(observation, TextObservation):
        raise WorldError("the world's answer is no observation", got=type(observation).__name__)
    values = {field.name: _number(getattr(observation, field.name)) for field in fields(TextObservation)}
    if type(values["reward"]) is int:
        values["reward"] = float(values["reward"])
    if isinstance(values["text"], str) and len(values["text"]) > LONGEST_ANSWER:  # before it is copied three times
        got = f"{len(values['text'])} characters"
        raise WorldError("the world's text is too long", got=got, expected=f"at most {LONGEST_ANSWER}")
    values["facts"] = _plain(values["facts"])
    return values


def _number(value: Any) -> Any:
    """Return Python's own number for one of numpy."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """Return what JSON can hold: arrays as lists, and what is nothing like data as its `repr`."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else repr(value)


def _failure(error: Exception) -> bytes:
    """Say what was raised, in plain words: exceptions need not pickle, and some cannot even be printed."""
    trace = ""
    if not isinstance(error, AgentGymTokError):
        trace = "".join(traceback.format_tb(error.__traceback__))[-_LONGEST_TRACEBACK:]
        error = WorldError("the world raised an error", got=f"{type(error).__name__}: {_words(error)}")
    parts = {name: _words(getattr(error, name)) for name in ERROR_PARTS if getattr(error, name) is not None}
    return pack({"error": {"class": type(error).__name__, "parts": parts, "traceback": trace}})


def _words(value: object) -> str:
    try:
        return str(value)[:_LONGEST_WORDS]
    except Exception as error:  # noqa: BLE001  # a foreign __str__ may do anything
        return f"(its words raise {type(error).__name__})"
