"""What people pass as a world: an instance, what makes one, or a registered name."""

import functools
import math
import os
from collections.abc import Callable
from typing import Literal, TypeAlias

import gymnasium as gym

from agentgym_tok.envs.engine import TextEngine
from agentgym_tok.envs.gym_text import as_engine
from agentgym_tok.errors import ConfigError, UnknownName, unknown_name

__all__ = ["Isolation", "World", "world_engine"]

World: TypeAlias = "TextEngine | gym.Env[str, str] | Callable[[], TextEngine | gym.Env[str, str]] | str"
Isolation: TypeAlias = Literal["none", "process"]

_OURS = "agentgym_tok"


def world_engine(world: World, isolation: Isolation | None, timeout_s: float) -> TextEngine:
    """Return the text engine of a world, in this process or in one of its own.

    Args:
        world: A world, what makes one (a class, a function, a partial), or a name that Gymnasium knows.
        isolation: `"process"` or `"none"`; None isolates what makes a foreign world. An instance stays here: it may
            hold what no other process can have.
        timeout_s: Seconds that an isolated world has for each answer.

    Raises:
        UnknownName: Nothing is registered under this name.
        ConfigError: It is no world, or it cannot be isolated.
        WorldError: The world could not be made in a process of its own.
    """
    if isolation not in {None, "none", "process"}:
        raise unknown_name("isolation", isolation, ["none", "process"], where="TokenEnv")
    if not 0 < timeout_s < math.inf:
        raise ConfigError("a world needs some time", where="TokenEnv: world_timeout_s", got=timeout_s)
    make = _maker(world)
    if isolation is None:
        isolation = "process" if make is not None and _foreign(make) and os.name == "posix" else "none"
    if isolation == "none":
        return as_engine(world if make is None else make())
    if os.name != "posix":
        raise ConfigError("isolation needs a POSIX system", where="TokenEnv: isolation", got=os.name)
    if make is None:
        as_engine(world)  # what is no world is said here
        make = functools.partial(_itself, world)
    from agentgym_tok.envs.isolation import IsolatedEngine  # noqa: PLC0415  # POSIX only

    return IsolatedEngine(make, timeout_s)


def _maker(world: object) -> Callable[[], object] | None:
    """Return what makes the world; None for an instance."""
    if isinstance(world, str):
        return functools.partial(gym.make, _registered(world))
    # A class may have all the members of an engine, and is still none.
    if isinstance(world, type):
        return world
    return world if callable(world) and not isinstance(world, (gym.Env, TextEngine)) else None


def _registered(name: str) -> "gym.envs.registration.EnvSpec":
    """Return the spec of a name, which another process may not know."""
    try:
        spec = gym.spec(name)
    except gym.error.Error as error:
        raise UnknownName(
            "no such environment is registered", where="TokenEnv: world", got=repr(name), expected=str(error)
        ) from error
    if spec.namespace == _OURS:
        raise ConfigError(
            "this is a token environment already",
            where="TokenEnv: world",
            got=repr(name),
            fix=f"gym.make({name!r}, chat=...)",
        )
    return spec


def _foreign(make: Callable[[], object]) -> bool:
    inner: object = make
    while isinstance(inner, functools.partial):
        inner = inner.func
    return str(getattr(inner, "__module__", "")).partition(".")[0] != _OURS


def _itself(world: object) -> object:
    return world
