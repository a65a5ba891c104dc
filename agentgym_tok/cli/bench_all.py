"""`agentgym-tok bench all`: every performance figure of the documentation, measured again and put into one table."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field

from agentgym_tok.cli.bench_parts import PARTS, Part
from agentgym_tok.cli.figures import load_average
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.evaluate.provenance import packages

__all__ = ["Options", "run"]

_ROOT = Path(__file__).parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Options(Config):
    """Run every benchmark in a process of its own, one after the other, and write one table of what they measured.

    Beside each figure stands its ratio to the other program that was measured in the same run. What another program
    needs is named by options; without it its part is left out, and the table says so. Linear algebra has one thread,
    unless the environment says otherwise.
    """

    only: tuple[str, ...] = Field(default=(), description="names of parts; all without it")
    quick: bool = Field(default=False, description="seconds a part; to see that all of them run, not for figures")
    stock: str | None = Field(default=None, description="Python of an environment with the stock ALFWorld engine")
    trl: str | None = Field(default=None, description="folder of packages with trl and accelerate")
    litellm: str | None = Field(default=None, description="the command litellm of an environment that has it")
    questions: tuple[str, ...] = Field(default=(), description="files of questions for Search-QA")
    corpus: tuple[str, ...] = Field(default=(), description="files of passages that go with them")
    out: str | None = Field(default=None, description="folder for figures.md and figures.json")


@dataclass(slots=True)
class _Result:
    """Hold what became of a part."""

    part: Part
    command: str
    why_not: str = ""
    load: float = 0.0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield each figure, its value, and how it stands to its peers."""
        for name, value in self.figures.items():
            beside = [
                f"{_number(ratio)} times {peer.whose}"
                for peer in self.part.peers
                if peer.ours == name and (ratio := peer.ratio(self.figures)) is not None
            ]
            yield name, _number(value), "; ".join(beside)


def run(options: Options) -> int:
    """Measure and print; return 0, or 1 where a benchmark failed.

    Raises:
        UnknownName: There is no part of that name.
        ConfigError: Only one of questions and corpus is given.
    """
    names = [part.name for part in PARTS]
    for name in options.only:
        if name not in names:
            raise unknown_name("part", name, names, where="bench all")
    if bool(options.questions) != bool(options.corpus):
        raise ConfigError("questions and passages go together", where="bench all", expected="--questions and --corpus")
    results = []
    for part in _chosen(options):
        result = _run(part, options)
        results.append(result)
        print(f"{part.name}: {result.why_not or f'{result.seconds:.0f} s'}", file=sys.stderr, flush=True)
    page = "\n".join(_page(results))
    print(page)
    if options.out is not None:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "figures.md").write_text(page + "\n", encoding="utf-8")
        (folder / "figures.json").write_text(json.dumps(_document(results), indent=1) + "\n", encoding="utf-8")
    return int(any(result.why_not.startswith("failed") for result in results))


def _chosen(options: Options) -> list[Part]:
    """Return the parts that are asked for; of one with a peer and the same without, the first that can run."""
    if options.only:
        return [part for part in PARTS if part.name in options.only]
    met = _met(options)
    beside = {part.name.partition("+")[0] for part in PARTS if "+" in part.name and met.keys() >= set(part.needs)}
    return [part for part in PARTS if part.name not in beside]


def _run(part: Part, options: Options) -> _Result:
    met = _met(options)
    missing = [need for need in part.needs if need not in met]
    arguments = [word for argument in part.command for word in met.get(argument.strip("{}"), [argument])]
    # Where others keep what is needed is nobody's business, and would be none of theirs.
    result = _Result(part, " ".join(["agentgym-tok", *(_SHOWN.get(argument, argument) for argument in part.command)]))
    if missing:
        result.why_not = f"left out: {', '.join(_HOW[need] for need in missing)}"
        return result
    python = (getattr(options, part.python) if part.python else None) or sys.executable
    environ = {**_ONE_THREAD, **os.environ}
    if python != sys.executable:  # of another environment, which borrows this library
        environ["PYTHONPATH"] = str(_ROOT)
    elif part.packages and getattr(options, part.packages):
        environ["PYTHONPATH"] = getattr(options, part.packages)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        quick = part.quick if options.quick else ()
        command = [python, "-m", "agentgym_tok.cli.main", *arguments, *quick, "--out", str(file)]
        result.load, start = load_average(), time.monotonic()
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603  # our own
        result.seconds = time.monotonic() - start
        if done.returncode or not file.exists():
            last = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()[-1]
            result.why_not = f"failed, status {done.returncode}: {last[:300]}"
            return result
        written = json.loads(file.read_text(encoding="utf-8"))
        # What explains the figures of a benchmark (rows, tables) is left to its own file.
        result.figures = dict(_numbers(written.get("figures") or written["models"]))
    return result


_SHOWN = {"{litellm}": "litellm", "{documents}": "--questions FILES --corpus FILES"}

_HOW: Mapping[str, str] = {
    "stock": "the stock engine, --stock",
    "litellm": "LiteLLM, --litellm",
    "torch": "torch and transformers, the extras torch and hf",
    "documents": "files of Search-QA, --questions and --corpus",
}


def _met(options: Options) -> dict[str, list[str]]:
    """Return the needs that are met, and the words that stand for them in a command."""
    met: dict[str, list[str]] = {}
    if options.stock is not None:
        met["stock"] = []
    if options.litellm is not None:
        met["litellm"] = [options.litellm]
    if find_spec("torch") is not None and find_spec("transformers") is not None:
        met["torch"] = []
    if options.questions:
        named = [("--questions", file) for file in options.questions] + [("--corpus", file) for file in options.corpus]
        met["documents"] = [word for pair in named for word in pair]
    return met


def _numbers(found: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _numbers(value, ": ".join(filter(None, (name, key.replace("_", " ")))))
    elif isinstance(found, int | float):
        yield name, float(found)


def _page(results: Sequence[_Result]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Figures\n"
    yield f"Measured on {date.today().isoformat()} by `agentgym-tok bench all`. {_machine()}\n"  # noqa: DTZ011  # for people
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(packages())) + ".\n"
    yield "| part | figure | value | beside it, in the same run |"
    yield "| --- | --- | --- | --- |"
    for result in results:
        for name, value, beside in result.rows():
            yield f"| {result.part.name} | {name} | {value} | {beside} |"
    yield "\n| part | command | load before | seconds |"
    yield "| --- | --- | --- | --- |"
    for result in results:
        took = f"{result.seconds:.0f}" if not result.why_not else result.why_not.replace("|", "/")
        yield f"| {result.part.name} | `{result.command}` | {result.load:.1f} | {took} |"


def _document(results: Sequence[_Result]) -> dict[str, Any]:
    parts = [
        {
            "name": result.part.name,
            "command": result.command,
            "why_not": result.why_not or None,
            "load": result.load,
            "seconds": result.seconds,
            "figures": result.figures,
            "ratios": [
                {"figure": peer.ours, "of": peer.whose, "times": ratio}
                for peer in result.part.peers
                if (ratio := peer.ratio(result.figures)) is not None
            ],
        }
        for result in results
    ]
    return {"machine": _machine(), "versions": dict(packages()), "parts": parts}


def _machine() -> str:
    """Say what the machine is."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{model or platform.processor() or 'unknown processor'}, {cores} cores; {platform.system()}, "
        f"Python {platform.python_version()}."
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
