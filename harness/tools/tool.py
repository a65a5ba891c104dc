"""A tool: one function that a policy may call, with the schema that tells about it."""

import copy
import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools.parameters import Parameters, signed

__all__ = ["Tool"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Tool:
    """Make a function a tool.

    A plain function has no state: all episodes share it, and several threads call it at once. What keeps state is an
    object that is called, or whose bound methods are tools; each episode gets a fresh one, by the object's method
    `fresh()`, or by its class where that was given and takes no arguments.

    Args:
        function: A typed function (`async` or not), a bound method, a callable object, or the class of one.
        name: What the policy calls it; None takes the function's name, or the class's in snake case.
        description: What it does; None takes the docstring.

    Attributes:
        function: What is called; an object, where a class was given.
        name: What the policy calls it.
        schema: JSON schema in the shape of the OpenAI API, as `ChatFormat.open` takes it.
        is_async: It is awaited.

    Raises:
        ConfigError: It cannot be a tool: the error says why, and what to change.
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> None:
        self._class = function if isinstance(function, type) else None
        self.function = function if self._class is None else _made(self._class)
        self.name = _default_name(self.function) if name is None else name
        self._description = description
        if not _NAME.fullmatch(self.name):
            expected = "up to 64 ASCII letters, digits, _ and -"
            raise ConfigError(
                "a tool needs a name", where="Tool", got=repr(self.name), expected=expected, fix="pass name="
            )
        self._check_state()
        self._describe()

    def _describe(self) -> None:
        where, target = f"tool {self.name}", self.function
        if not (inspect.isroutine(target) or isinstance(target, functools.partial)):
            target = type(target).__call__
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            raise ConfigError("a tool gives one answer", where=where, got="a generator", fix="return a list")
        self.is_async = inspect.iscoroutinefunction(target)
        self._parameters = Parameters(self.function, where)
        description = self._description or self._parameters.description
        if not description:
            fix = "write a docstring, or pass description="
            raise ConfigError("a policy must be told what the tool does", where=where, got="no docstring", fix=fix)
        function = {"name": self.name, "description": description, "parameters": self._parameters.schema}
        self.schema: Mapping[str, Any] = {"type": "function", "function": function}

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        # A model that was made at run time does not pickle; the signature makes it again.
        return {name: value for name, value in vars(self).items() if name != "_parameters"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._describe()

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments as the function takes them.

        Raises:
            ValueError: They do not fit; the message says how.
        """
        return self._parameters.read(arguments)

    @property
    def owner(self) -> Any:
        """The object that keeps the state; None for a plain function."""
        function = self.function
        if inspect.ismethod(function):
            return None if isinstance(function.__self__, type) else function.__self__
        return None if isinstance(function, functools.partial) or inspect.isroutine(function) else function

    def fresh(self, twins: dict[int, Any]) -> "Tool":
        """Return the tool with a state of its own, as at the start of an episode.

        Args:
            twins: Fresh objects by the ids of those that they replace: tools of one object stay tools of one object.
        """
        owner = self.owner
        if owner is None:
            return self
        if id(owner) not in twins:
            twins[id(owner)] = owner.fresh() if self._class is None else _made(self._class)
        return self._of(twins[id(owner)])

    def clone(self, memo: dict[int, Any]) -> "Tool":
        """Return the tool with a copy of its state as it is now; `memo` is that of `copy.deepcopy`."""
        return self if self.owner is None else self._of(copy.deepcopy(self.owner, memo))

    def _of(self, owner: Any) -> "Tool":
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        method = self.function
        twin.function = types.MethodType(method.__func__, owner) if inspect.ismethod(method) else owner
        return twin

    def _check_state(self) -> None:
        function = self.function
        if not callable(function):
            expected = "a function, a callable object, or its class"
            raise ConfigError("this is no tool", where="Tool", got=repr(function)[:80], expected=expected)
        if isinstance(function, functools.partial) and not inspect.isfunction(function.func):
            fix = "write a function instead"
            raise ConfigError("only a plain function can be partial", where=f"tool {self.name}", got="partial", fix=fix)
        if self.owner is not None and self._class is None and not callable(getattr(self.owner, "fresh", None)):
            raise ConfigError(
                "the state of one episode would leak into the next",
                where=f"tool {self.name}",
                got=f"a {type(self.owner).__name__} without a method fresh()",
                fix="give it a method fresh() that returns a new one (or itself, where it keeps no state)",
            )


def _made(kind: type) -> Any:
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError) as error:
        fix = "pass an object that has a method fresh() instead of its class"
        where = kind.__name__
        raise ConfigError("a tool's class takes no arguments", where=where, got=str(error), fix=fix) from error
    return kind()


def _default_name(function: Any) -> str:
    if inspect.isroutine(function):
        return function.__name__
    name = signed(function).__name__ if isinstance(function, functools.partial) else type(function).__name__
    return _WORD_START.sub("_", name).lower()
