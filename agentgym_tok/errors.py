"""The exceptions of the library.

    AgentGymTokError
    ├── InvalidIds (ValueError)              ids of a wrong type, shape or range
    ├── InvalidLogprobs (ValueError)         log-probabilities that do not fit their ids
    ├── InvalidAction (ValueError)           an action that no policy turn can be made of
    ├── ResetNeeded (RuntimeError)           step before reset, or after the end of the episode
    ├── CloneUnsupported (NotImplementedError)
    ├── UnknownName (LookupError)            a task, split, policy, ... that does not exist; suggests the nearest
    ├── ConfigError (ValueError)             an option or a combination of options that cannot work
    ├── DataMissing (FileNotFoundError)      files that a world needs are not there
    ├── DataCorrupt (ValueError)             a file is there, but it is not what it should be
    ├── MissingExtra (ImportError)           an optional dependency is not installed
    ├── ChatError (ValueError)               a template or tokenizer that cannot do what was asked
    │   └── FingerprintMismatch              ids of another tokenizer, template or setting
    ├── TraceError (RuntimeError)            a trace that cannot be written or read
    │   ├── StoreLocked (BlockingIOError)    another process writes this shard
    │   └── TraceCorrupt (ValueError)        a record that contradicts itself
    ├── WorldError (RuntimeError)            the world under an environment failed
    └── PolicyError (RuntimeError)           the engine failed, or returned what no engine may return
        └── TransientPolicyError             another attempt may not meet this failure

To add one: inherit a class above AND the stdlib class that a stranger would catch, list it in `__all__`,
and give it no constructor of its own, so that it stays picklable (vector environments send errors between processes).
"""

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "AgentGymTokError",
    "ChatError",
    "CloneUnsupported",
    "ConfigError",
    "DataCorrupt",
    "DataMissing",
    "FingerprintMismatch",
    "InvalidAction",
    "InvalidIds",
    "InvalidLogprobs",
    "MissingExtra",
    "PolicyError",
    "ResetNeeded",
    "StoreLocked",
    "TraceCorrupt",
    "TraceError",
    "TransientPolicyError",
    "UnknownName",
    "WorldError",
    "unknown_name",
]


class AgentGymTokError(Exception):
    """Say what went wrong, where, what was got and expected, and what to do next.

    Args:
        what: One sentence without a full stop.
        where: The place: an argument, a file, an environment id, a turn.
        got: What was found there.
        expected: What should have been there.
        fix: The next step, as an instruction or a command.
    """

    def __init__(
        self, what: str, *, where: object = None, got: object = None, expected: object = None, fix: str | None = None
    ) -> None:
        # Gymnasium's workers raise an error again as `type(error)(error)`: then `what` is the first error.
        self.what, self.where, self.got, self.expected, self.fix = str(what), where, got, expected, fix
        super().__init__(self.what)

    def __str__(self) -> str:
        # OSError and LookupError print themselves in ways of their own; the message must not depend on the twin.
        named = (("where", self.where), ("got", self.got), ("expected", self.expected), ("next", self.fix))
        return "; ".join([self.what, *(f"{name}: {value}" for name, value in named if value is not None)])

    def __reduce__(self) -> tuple[Any, ...]:
        # Parts may hold what cannot be pickled; the words always can.
        parts = {name: _text(getattr(self, name)) for name in ("where", "got", "expected", "fix")}
        return _rebuild, (type(self), self.what, parts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _rebuild(cls: type[AgentGymTokError], what: str, parts: dict[str, str | None]) -> AgentGymTokError:
    return cls(what, **parts)


class InvalidIds(AgentGymTokError, ValueError):
    """Token ids have a wrong type, shape or range."""


class InvalidLogprobs(AgentGymTokError, ValueError):
    """Log-probabilities do not fit their ids, or are impossible."""


class InvalidAction(AgentGymTokError, ValueError):
    """An action cannot be a policy's turn."""


class ResetNeeded(AgentGymTokError, RuntimeError):
    """The environment was stepped before a reset or after the end of its episode."""


class CloneUnsupported(AgentGymTokError, NotImplementedError):
    """The world cannot copy its state; replay the commands instead."""


class UnknownName(AgentGymTokError, LookupError):
    """No task, split, policy or other thing has this name."""


class ConfigError(AgentGymTokError, ValueError):
    """An option, or a combination of options, cannot work."""


class DataMissing(AgentGymTokError, FileNotFoundError):
    """Files that a world needs are not there; nothing is swapped in silently."""


class DataCorrupt(AgentGymTokError, ValueError):
    """A file is there, but its content is not what it should be."""


class MissingExtra(AgentGymTokError, ImportError):
    """An optional dependency is not installed."""


class ChatError(AgentGymTokError, ValueError):
    """A template or a tokenizer cannot do what was asked."""


class FingerprintMismatch(ChatError):
    """Ids belong to another tokenizer, template or setting."""


class TraceError(AgentGymTokError, RuntimeError):
    """A trace cannot be written or read."""


class StoreLocked(TraceError, BlockingIOError):
    """Another process writes this shard."""


class TraceCorrupt(TraceError, ValueError):
    """A record of a trace contradicts itself or another record."""


class WorldError(AgentGymTokError, RuntimeError):
    """The world under an environment failed (boundary `world`)."""


class PolicyError(AgentGymTokError, RuntimeError):
    """The engine failed, or returned what no engine may return (boundary `policy`)."""

    transient: ClassVar[bool] = False
    """Another attempt may not meet this failure: the engine was away, overloaded or out of memory, or broke off."""


class TransientPolicyError(PolicyError):
    """The engine failed in a way that may pass; whoever can wait may ask again."""

    transient = True


def unknown_name(kind: str, name: object, known: Iterable[str], *, where: object = None) -> UnknownName:
    """Make the error for a name that does not exist, with the nearest known ones.

    Args:
        kind: What the name should have been: `"task"`, `"split"`, `"policy"`.
        name: The name that was asked for.
        known: The names that exist.
        where: The place that asked.
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    fix = f"did you mean {' or '.join(near)}?" if near else f"choose one of the known {kind} names"
    return UnknownName(f"unknown {kind}", where=where, got=repr(name), expected=shown or f"no {kind} exists", fix=fix)
