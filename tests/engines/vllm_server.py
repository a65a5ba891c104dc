"""A real vLLM server as a child process, out of an environment of its own (`make vllm`)."""

import hashlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CACHE", "Server", "eventually", "metric", "serving", "vllm_python"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentgym-tok"
_LOCK = Path(__file__).resolve().parents[2] / "requirements" / "vllm.txt"
_START_S = 600.0


def vllm_python() -> Path:
    """Return the interpreter that `make vllm` makes, whether it is there or not."""
    name = f"vllm-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]}"
    return CACHE / "venvs" / name / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers.

    Args:
        url: Its address.
        folder: The model that it serves.
        log: What it wrote.
        process: The first of its processes, which leads their group.
    """

    url: str
    folder: Path
    log: Path
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """End all of its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(folder: Path, log: Path, *flags: str) -> Iterator[Server]:
    """Serve a model in float32 until the block ends.

    Args:
        folder: The model.
        log: File for what the server writes.
        flags: More of the server's own flags.

    Raises:
        RuntimeError: It does not start; the message has the end of the log.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # `vllm serve` looks for a distribution of that name, and this one has another.
    module = "vllm.entrypoints.openai.api_server"
    place = ["--model", str(folder), "--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port)]
    # A test run that is killed cannot clean up: the server ends with it, and the server's own children with the server.
    command = ["setpriv", "--pdeathsig", "TERM", str(vllm_python()), "-m", module, *place, *_FLAGS, *flags]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", folder, log, process)
    try:
        _wait(server)
        yield server
    finally:
        _stop(server)


_FLAGS = (
    "--dtype=float32",
    "--max-model-len=8192",
    "--max-num-seqs=32",
    "--enforce-eager",
    "--enable-scale-out",  # else /inference/v1/generate answers 403
    "--no-enable-chunked-prefill",  # a request's own seed and a prompt in pieces end the engine
    "--max-num-batched-tokens=8192",
)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        # All cores: left alone, it keeps one back.
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in sorted(os.sched_getaffinity(0))),
        "PYTHONPATH": "",
    }


def _wait(server: Server) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"vLLM did not start ({server.process.poll()=}):\n{server.log.read_text()[-6000:]}")


def _stop(server: Server) -> None:
    server.process.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(timeout=20)
    with suppress(ProcessLookupError):
        server.kill()  # whoever of the group outlives its leader


def metric(server: Server, name: str) -> float:
    """Return the sum of a metric's values over its labels."""
    with urllib.request.urlopen(f"{server.url}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def eventually(holds: Callable[[], bool]) -> bool:
    """Tell whether something comes to hold within a minute."""
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
