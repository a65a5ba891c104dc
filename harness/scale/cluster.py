"""The one place that knows Ray: connecting to a cluster, starting workers there, and what its errors mean."""

import importlib
import math
import os
import socket
from collections.abc import Awaitable
from typing import Any, TypeVar

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.harness.scale.dealing import WorkerLost
from agentgym_tok.harness.scale.worker import Worker

__all__ = ["RayOptions", "answer_of", "connect", "hire", "reason"]

R = TypeVar("R")

_WAIT_S = 5.0


class RayOptions(Config):
    """Say which cluster, and what a worker needs there."""

    workers: int = Field(default=2, ge=1, description="processes, each with an engine of its own")
    address: str | None = Field(
        default=None, description="HOST:PORT of the cluster, or auto; without it RAY_ADDRESS, else one on this machine"
    )
    cpus: float = Field(default=1.0, gt=0, description="of each worker, as Ray counts them")
    gpus: float = Field(default=0.0, ge=0, description="of each worker, as Ray counts them")
    attempts: int = Field(default=3, ge=1, description="workers that may be lost over an episode before it has failed")


def connect(options: RayOptions) -> Any:
    """Return Ray, connected to a cluster.

    A cluster that this process is connected to already is taken. Without an address one is started on this machine,
    and ends with this process.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: No cluster answers, it is of another version, or it has no room for a single worker.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        fix = "pip install 'agentgym-tok[ray]'"
        raise MissingExtra("Ray is not installed", where='backend="ray"', got=str(error), fix=fix) from error
    if not ray.is_initialized():
        address = options.address or os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {"num_cpus": math.ceil(options.workers * options.cpus), "include_dashboard": False}
        if address is not None:
            _try(address)
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="error",
                **(local if address is None else {}),
            )
        except (Exception, SystemExit) as error:  # where the other side is no cluster, Ray ends the process
            raise _unreachable(address or "on this machine", error) from error
    _check_room(ray, options)
    return ray


def _try(address: str) -> None:
    """Make sure that somebody answers: Ray itself tries for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "/" in address or not port.isdigit():
        raise ConfigError("no address of a cluster", where="ray.address", got=address, expected="HOST:PORT or auto")
    try:
        socket.create_connection((host, int(port)), timeout=_WAIT_S).close()
    except OSError as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: BaseException) -> ConfigError:
    return ConfigError(
        "no Ray cluster can be used",
        where=f"ray.address {address}",
        got=str(error).splitlines()[0] if str(error) else type(error).__name__,
        fix="start one (ray start --head; on other machines ray start --address HOST:PORT), or leave the address out",
    )


def _check_room(ray: Any, options: RayOptions) -> None:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= options.cpus and node.get("GPU", 0) >= options.gpus for node in nodes):
        return
    raise ConfigError(
        "no node of the cluster has room for a worker",
        where='backend="ray"',
        got="; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes) or "no node",
        expected=f"{options.cpus:g} CPUs and {options.gpus:g} GPUs on one of them",
        fix="ask for less by ray.cpus and ray.gpus, or add nodes: ray start --address HOST:PORT",
    )


def hire(ray: Any, options: RayOptions, name: str) -> Any:
    """Return a handle of a new worker, which is started where there is room; it ends with its last handle."""
    needs: dict[str, Any] = {"num_cpus": options.cpus, **({"num_gpus": options.gpus} if options.gpus else {})}
    # It is never restarted: a new worker writes a new shard.
    actor = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=10_000, **needs)(Worker)
    return actor.options(scheduling_strategy="SPREAD").remote(name)


async def answer_of(ray: Any, reference: Awaitable[R]) -> R:
    """Wait for what a worker returns.

    Raises:
        WorkerLost: It is gone, or what it returned is.
        BaseException: What it raised.
    """
    try:
        return await reference
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # as if it had been raised here
    except ray.exceptions.RayError as error:
        raise WorkerLost(reason(error)) from error


def reason(error: BaseException) -> str:
    """Return the first words of a long report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
