"""`agentgym-tok bench proxy`: requests a second, added latency and memory of the proxy, beside other gateways."""

import asyncio
import contextlib
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.bench_proxy_load import Load, closed_loop, open_loop, soak
from agentgym_tok.cli.figures import report
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import TraceStore, verify

__all__ = ["Options", "run"]

_TOKENS = 16
_MOST_RATE = 250.0
"""Streams a second beyond which the load, and not the gateway, would be measured."""
_SETTLED_S = 45.0
"""So long after the soak all is written, and freed memory was given back."""
_MARKED = 32
"""So many ids hold the marker of a conversation."""
_LITELLM = """\
model_list:
  - model_name: tiny
    litellm_params: {{model: openai/tiny, api_base: "{url}/v1", api_key: none}}
"""


class Options(Config):
    """Serve an engine that costs nothing, put gateways before it, and ask.

    Gateways run on the first core, the engine and the load on the last one. Conversations of eight turns begin with
    `words` words and get 16 tokens a turn. Capacity: 16 clients ask as fast as they are answered, and the engine
    answers at once. Latency: requests come at half of the gateway's own capacity with streams, and the engine takes
    20 ms for each token; the same rate straight to the engine is taken off. Soak: sessions are opened and ended over
    and over, and the trace is held against what clients were told.
    """

    seconds: float = Field(default=10.0, gt=0, description="how long each of the short runs takes")
    words: int = Field(default=300, ge=6, description="words in a conversation's first message")
    litellm: str | None = Field(default=None, description="the command litellm of an environment that has it")
    soak_s: float = Field(default=0.0, ge=0, description="seconds of the soak; 0 leaves it out")
    streams: int = Field(default=256, ge=1, description="streams at the same time in the soak")
    soak_words: int = Field(default=2600, ge=6, description="words of a first message in the soak: about 8,000 tokens")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0, or 1 where the soak lost or crossed a turn.

    Raises:
        ConfigError: A gateway did not start.
    """
    figures: dict[str, float] = {}
    lost = 0
    with _on_the_last_core():
        gateways = _capacities(options, figures)
        _latencies(options, gateways, figures)
        if options.soak_s:
            found, lost = _soak(options)
            figures |= found
    report("the recording proxy", figures, options, options.out)
    return 1 if lost else 0


@contextlib.contextmanager
def _on_the_last_core() -> Iterator[None]:
    """Keep the load away from the gateways' core."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("processes cannot be kept on a core here", where="bench proxy", expected="Linux")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _capacities(options: Options, figures: dict[str, float]) -> "list[_Gateway]":
    """Ask gateways as fast as they answer."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        engine = stack.enter_context(_engine(0.0))
        gateways = [*_gateways(stack, options, engine, Path(folder))]
        for gateway in gateways:
            for stream in (True, False):
                times = asyncio.run(closed_loop(gateway.load(options.words, stream=stream), 16, options.seconds))
                gateway.capacity[stream] = times.rate
                figures[f"{gateway.name}: requests/s{', streamed' if stream else ''}"] = times.rate
                figures[f"{gateway.name}: failed{', streamed' if stream else ''}"] = times.failed
    return gateways


def _latencies(options: Options, gateways: "Sequence[_Gateway]", figures: dict[str, float]) -> None:
    """Ask gateways at half of their capacity, with an engine that takes its time."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        engine = stack.enter_context(_engine(0.02))
        for paced, gateway in zip(_gateways(stack, options, engine, Path(folder)), gateways, strict=True):
            figures |= _latency(paced, min(gateway.capacity[True] / 2, _MOST_RATE), engine, options)


@dataclass(slots=True)
class _Gateway:
    name: str
    port: int
    own_keys: bool = False
    capacity: dict[bool, float] = field(default_factory=dict)

    def load(self, words: int, *, stream: bool) -> Load:
        """Return what it is asked."""
        return Load(self.port, f"key{time.time_ns()}", words, stream, self.own_keys)


def _latency(gateway: _Gateway, rate: float, engine: int, options: Options) -> Mapping[str, float]:
    """Return what a gateway adds to an answer."""
    straight = asyncio.run(open_loop(Load(engine, "none", options.words, own_keys=False), rate, options.seconds))
    through = asyncio.run(open_loop(gateway.load(options.words, stream=True), rate, options.seconds))
    before, after = straight.percentiles(), through.percentiles()
    added = {f"{gateway.name}: added {name}": after[name] - before[name] for name in after}
    return {f"{gateway.name}: paced requests/s": rate, f"{gateway.name}: paced failed": through.failed, **added}


def _soak(options: Options) -> tuple[dict[str, float], int]:
    """Return figures of many sessions one after the other, and how many turns were lost or crossed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        engine = stack.enter_context(_engine(0.02))
        run, port, key = Path(folder) / "run", _free_port(), "k" * 32
        process = stack.enter_context(_ours(engine, port, run, any_key=False, admin_key=key))
        memory = _Memory(process.pid)
        before = memory.now()
        load = Load(port, key, options.soak_words, own_keys=False)
        times, told = asyncio.run(soak(load, options.streams, options.soak_s))
        slope, peak = memory.stop()
        time.sleep(_SETTLED_S)
        after = memory.now()
        process.terminate()
        process.wait()
        lost = _compare(run, told)
    figures = {
        "soak: turns": len(times.total_s),
        "soak: sessions": len(told),
        "soak: failed": times.failed,
        "soak: lost or crossed": lost,
        **({} if math.isnan(slope) else {"soak: MB/min after warm-up": slope}),
        "soak: MB before": before,
        "soak: MB at most": peak,
        "soak: MB when all sessions have ended": after,
    }
    return figures, lost + times.failed


def _compare(run: Path, told: Mapping[str, Sequence[str]]) -> int:
    """Count turns that the trace does not have as they were told, in the session whose they were."""
    chat = ChatFormat.builtin()
    found = verify(run, chat)
    if found.breaches:
        raise ConfigError("the trace does not verify", where="bench proxy", got=found.breaches[0])
    wrong = 0
    with TraceStore(run, mode="r") as store:
        for name, answers in told.items():
            episode = store.episode(name)
            marker = f"agent {episode.head.task}."
            marked = [marker in chat.decode(turn.context.ids[:_MARKED]) for turn in episode.turns]
            texts = [chat.parse(turn.completion.ids_T).content for turn in episode.turns]
            wrong += texts != list(answers) or not all(marked)
    return wrong


class _Memory:
    """Watch the memory of a process.

    Args:
        process: Its id.
    """

    def __init__(self, process: int) -> None:
        self._file = Path(f"/proc/{process}/statm")
        self._seen: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(2.0):
            self._seen.append((time.monotonic() / 60, self.now()))

    def now(self) -> float:
        """Return what the process holds, in MB."""
        pages = int(self._file.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> tuple[float, float]:
        """Return its growth in MB a minute over the second half (nan of a few seconds), and its peak in MB."""
        self._over.set()
        self._thread.join()
        half, peak = self._seen[len(self._seen) // 2 :], max(value for _, value in [*self._seen, (0.0, self.now())])
        if len(half) < 3:
            return math.nan, peak
        minutes_N, megabytes_N = np.array(half).T
        return float(np.polyfit(minutes_N, megabytes_N, 1)[0]), peak


# ---- processes


def _gateways(stack: contextlib.ExitStack, options: Options, engine: int, folder: Path) -> Iterator[_Gateway]:
    """Start the gateways, ours first."""
    port = _free_port()
    stack.enter_context(_ours(engine, port, folder / "run", any_key=True))
    yield _Gateway("ours", port, own_keys=True)
    port = _free_port()
    command = [sys.executable, "-m", "agentgym_tok.cli.bench_proxy_pass", f"http://localhost:{engine}", str(port)]
    stack.enter_context(_started(command, port))
    yield _Gateway("pass-through", port)
    if options.litellm is not None:
        port = _free_port()
        config = folder / "litellm.yaml"
        config.write_text(_LITELLM.format(url=f"http://localhost:{engine}"))
        command = [options.litellm, "--config", str(config), "--port", str(port), "--host", "localhost"]
        environ = {"LITELLM_LOG": "ERROR", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        stack.enter_context(_started(command, port, environ))
        yield _Gateway("litellm", port)


@contextlib.contextmanager
def _ours(
    engine: int, port: int, run: Path, *, any_key: bool, admin_key: str = ""
) -> "Iterator[subprocess.Popen[bytes]]":
    options = ["--policy", f"vllm:http://localhost:{engine}?concurrency=512", "--out", str(run), "--port", str(port)]
    options += ["--limits.sessions", "1000000", "--limits.in-flight", "2000"]
    options += ["--any-key"] if any_key else ["--admin-key-variable", "BENCH_ADMIN_KEY"]
    command = [sys.executable, "-m", "agentgym_tok.cli.main", "proxy", *options]
    with _started(command, port, {"BENCH_ADMIN_KEY": admin_key}) as process:
        yield process


@contextlib.contextmanager
def _engine(pace_s: float) -> Iterator[int]:
    port = _free_port()
    command = [sys.executable, "-m", "agentgym_tok.cli.bench_proxy_engine", str(_TOKENS), str(pace_s), str(port)]
    with _started(command, port, core=-1):
        yield port


@contextlib.contextmanager
def _started(
    command: Sequence[str], port: int, environ: Mapping[str, str] | None = None, core: int = 0
) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a server on a core of its own, and wait until it answers."""
    cores = range(os.cpu_count() or 1)
    # The load runs beside the engine; with taskset, since a process with threads must not run code in its child.
    pinned = ["taskset", "-c", str(cores[core]), *command]
    with tempfile.TemporaryFile() as log:
        process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  # ours, and one that the user names
            pinned, env={**os.environ, **(environ or {})}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _await(process, port, log)
            yield process
        finally:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", port: int, log: IO[bytes]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    log.seek(0)
    got = re.sub(r"\s+", " ", log.read().decode(errors="replace"))[-300:]
    raise ConfigError("a server did not start", where="bench proxy", got=got)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port
