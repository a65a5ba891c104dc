"""`agentgym-tok bench webshop`: steps, resets, searches and memory of the shop."""

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field

from agentgym_tok.cli.figures import report
from agentgym_tok.cli.progress import Amounts
from agentgym_tok.config import Config
from agentgym_tok.envs.webshop.data import open_shop, prepare
from agentgym_tok.envs.webshop.engine import WebShopEngine
from agentgym_tok.envs.webshop.generated.shop import FILES, SOURCE, synth_shop, write_synth
from agentgym_tok.envs.webshop.shop import Shop

__all__ = ["Options", "run"]

_WALKS = 300
_SEARCHES = 200
_MOST_STEPS = 15

T = TypeVar("T")


class Options(Config):
    """Measure the shop on one core, in seconds of this process's CPU time.

    Episodes are recorded first, half the expert's commands and half random clicks, and then played again in a shop that
    remembers nothing of them. With `--products` a generated shop of that size is written, prepared, opened and searched
    as well: its memory is the most that the process ever took.
    """

    products: int | None = Field(default=None, ge=1, description="also prepare a generated shop of so many products")
    folder: str | None = Field(
        default=None, description="keeps that shop's files; must not exist; else they are removed"
    )
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    figures = _small()
    if options.products is not None:
        figures |= _large(options.products, options.folder)
    report("webshop, CPU time", figures, options, options.out)
    return 0


def _small() -> dict[str, float]:
    shop, generate_s = _timed(synth_shop)
    walks = list(_record(WebShopEngine(shop)))
    # A copy has none of what the recording left in memory: pages, products, searches.
    engine = WebShopEngine(pickle.loads(pickle.dumps(shop)))  # noqa: S301  our own
    in_reset = in_steps = 0.0
    for task, commands in walks:
        in_reset += _timed(lambda task=task: engine.reset(task))[1]  # type: ignore[misc]
        in_steps += _timed(lambda commands=commands: [engine.step(command) for command in commands])[1]  # type: ignore[misc]
    steps = sum(len(commands) for _, commands in walks)
    return {
        "generate and index 1,000 products, s": generate_s,
        "engine steps/s": steps / in_steps,
        "engine reset, us": 1e6 * in_reset / len(walks),
        "engine clone, us": 1e6 * _timed(lambda: [engine.clone() for _ in range(1000)])[1] / 1000,
        "search, median ms": _search_ms(shop),
        "memory of the process, MB": _memory_mb(),
    }


def _large(products: int, kept: str | None) -> dict[str, float]:
    name = f"{products:,} products"
    with _folder(kept) as folder, Amounts() as amounts:
        _, write_s = _timed(
            lambda: write_synth(
                folder / "raw", products, progress=lambda done, total: amounts.show("written", done, total)
            )
        )
        files = [folder / "raw" / file for file in FILES]
        done, prepare_s = _timed(lambda: prepare(*files, folder=folder / "prepared", progress=amounts.show))
        peak = _memory_mb()
        start = time.perf_counter()
        shop = open_shop(done.folder, "synthetic", SOURCE)
        open_s = time.perf_counter() - start
        return {
            f"{name}: write raw files, s": write_s,
            f"{name}: prepare, s": prepare_s,
            f"{name}: most memory while preparing, MB": peak,
            f"{name}: open, s of the clock": open_s,
            f"{name}: search, median ms": _search_ms(shop),
        }


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    if kept is not None:
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _record(engine: WebShopEngine) -> Iterator[tuple[str, Sequence[str]]]:
    draw = np.random.default_rng(0)
    tasks = engine.tasks()
    for index in draw.choice(len(tasks), size=_WALKS).tolist():
        task = tasks[int(index)]
        observation = engine.reset(task)
        commands: list[str] = []
        while not observation.terminated and len(commands) < _MOST_STEPS:
            clicks = [click for click in observation.admissible_commands if click != "click[buy now]"]
            expert = draw.random() < 0.5 or not clicks
            command = engine.expert_command() if expert else clicks[int(draw.integers(len(clicks)))]
            commands.append(command or "click[back to search]")
            observation = engine.step(commands[-1])
        yield task, commands


def _search_ms(shop: Shop) -> float:
    """Return the median of searches for the words of goals, none of which was searched for before."""
    places = np.random.default_rng(1).choice(len(shop.goals), size=_SEARCHES).tolist()
    texts = [shop.goals[place].instruction_text for place in places]
    return 1e3 * statistics.median(_timed(lambda text=text: shop.catalogue.search.rank(text))[1] for text in texts)  # type: ignore[misc]


def _memory_mb() -> float:
    """Return the most memory that this process ever had; nan where the system does not tell."""
    try:
        import resource  # noqa: PLC0415  # not everywhere
    except ImportError:
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start
