"""`agentgym-tok bench scaling`: what a run costs as episodes, turns, contexts and workers become more."""

import functools
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import cloudpickle
import numpy as np
from pydantic import Field
from rich.table import Table

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import load_average, write_figures
from agentgym_tok.cli.terminal import show
from agentgym_tok.config import Config
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness import Harness
from agentgym_tok.harness.scale import RayOptions
from agentgym_tok.harness.worker_shards import store_whole
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, TraceStore
from agentgym_tok.types import Request

__all__ = ["Options", "run"]

_WORDS = (
    "the",
    "a",
    "door",
    "lamp",
    "shelf",
    "red",
    "small",
    "open",
    "take",
    "look",
    "under",
    "mug",
    "left",
    "is",
    "and",
)
_SAYS = 12
"""Words of a turn."""


class Options(Config):
    """Play a world that talks much or little, many turns or few, with a policy that answers at once.

    Counts and bytes are the same on every machine; milliseconds are CPU time of this process. From all rows the bytes
    are explained, by least squares, as so many for each episode, turn, token and pair of turns.
    """

    episodes: int = Field(default=16, ge=2, description="of each row")
    turns: tuple[int, ...] = Field(default=(4, 8, 16, 32, 64), min_length=2, description="of an episode")
    words: tuple[int, ...] = Field(default=(25, 100), min_length=1, description="of the world's answer to a turn")
    workers: tuple[int, ...] = Field(default=(), description="also play on Ray with so many; of the first row's shape")
    out: str | None = Field(default=None, description="file for the figures as JSON")


@dataclass(frozen=True, slots=True)
class _Row:
    """Hold what one shape of episodes costs, each figure for one episode unless it says something else."""

    turns: int
    new_tokens: float
    longest_context: float
    context_tokens: float
    trace_bytes: float
    wire_bytes: float
    play_ms_a_turn: float
    receive_ms: float
    store_ms: float


def run(options: Options) -> int:
    """Measure and print; return 0."""
    _measure(2, 10, 2)  # what is made once is made now
    rows = [_measure(turns, words, options.episodes) for words in options.words for turns in options.turns]
    table = Table(title=f"an episode, mean of {options.episodes}, load {load_average():.1f}", title_justify="left")
    names = [name.replace("_", " ") for name in _Row.__slots__]
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(_shown(getattr(row, name)) for name in _Row.__slots__))
    show(table)
    models = {name: _explained(rows, name) for name in ("trace_bytes", "wire_bytes")}
    for name, model in models.items():
        parts = ", ".join(f"{value:,.1f} {what}" for what, value in model.items())
        print(f"{name.replace('_', ' ')}: {parts}")
    scaled = [_on_ray(workers, options) for workers in options.workers]
    for figures in scaled:
        print(", ".join(f"{what} {value:,.6g}" for what, value in figures.items()))
    measured = {"load": load_average(), "rows": [_as_dict(row) for row in rows], "models": models, "ray": scaled}
    write_figures(options.out, options, measured)
    return 0


def _measure(turns: int, words: int, count: int) -> _Row:
    chat = ChatFormat.builtin()
    make_env = functools.partial(_talking, turns, words, count)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        with TraceStore(Path(folder, "run"), chat=chat) as store:
            episodes = Harness(talk, chat, store=store).run_many(make_env, range(count))
        played = time.process_time() - start
        sent = [pickle.dumps(episode, protocol=5) for episode in episodes]
        receive_s, received = _timed(lambda: [pickle.loads(body) for body in sent])  # noqa: S301  # our own bytes
        with TraceStore(Path(folder, "copy"), chat=chat) as copy:
            store_s, _ = _timed(lambda: _store_all(copy, received))
        with TraceStore(Path(folder, "empty"), chat=chat):
            pass
        size, empty = (_shard_bytes(Path(folder, run)) for run in ("run", "empty"))
    return _Row(
        turns=turns,
        new_tokens=_mean(episodes, lambda episode: len(episode.turns[-1].context) + len(_answer(episode, -1))),
        longest_context=_mean(episodes, lambda episode: len(episode.turns[-1].context)),
        context_tokens=_mean(episodes, lambda episode: sum(len(turn.context) for turn in episode.turns)),
        trace_bytes=(size - empty) / count,
        wire_bytes=sum(map(len, sent)) / count,
        play_ms_a_turn=1e3 * played / (count * turns),
        receive_ms=1e3 * receive_s / count,
        store_ms=1e3 * store_s / count,
    )


def _on_ray(workers: int, options: Options) -> dict[str, float]:
    """Play on workers, and return what that asks of the driver."""
    chat, count = ChatFormat.builtin(), options.episodes * workers
    make_env = functools.partial(_talking, options.turns[0], options.words[0], count)
    with tempfile.TemporaryDirectory() as folder, TraceStore(Path(folder), chat=chat) as store:
        harness: Any = Harness(talk, chat, store=store, backend=RayOptions(workers=workers))
        start, clock = time.process_time(), time.perf_counter()
        harness.run_many(make_env, range(count), concurrency=8 * workers, keep=False)
        spent, passed = time.process_time() - start, time.perf_counter() - clock
        harness.policy.close()
        shards = [path.stat().st_size for path in Path(folder, "shards").glob("main.ray-*.sqlite")]
    return {
        "workers": workers,
        "episodes": count,
        "bytes to a worker, once": len(cloudpickle.dumps(make_env)),
        "driver, CPU ms an episode": 1e3 * spent / count,
        "seconds": passed,
        "bytes of the largest worker's shard": max(shards),
        "bytes of all shards": sum(shards),
    }


def _explained(rows: Sequence[_Row], name: str) -> dict[str, float]:
    """Explain bytes by what an episode has; the last figure is the worst error, in percent."""
    causes_N_K = np.array([[1, row.turns, row.new_tokens, row.turns**2] for row in rows], float)
    bytes_N = np.array([getattr(row, name) for row in rows], float)
    if not bytes_N.all():
        fix = "raise --episodes"
        raise ConfigError("a trace grew by less than its pages tell", where="bench scaling", got=name, fix=fix)
    found_K, *_ = np.linalg.lstsq(causes_N_K / bytes_N[:, None], np.ones(len(rows)), rcond=None)
    worst = float(np.max(np.abs(causes_N_K @ found_K / bytes_N - 1)))
    names = ("an episode", "a turn", "a token", "a pair of turns")
    return {**{what: float(value) for what, value in zip(names, found_K, strict=True)}, "% worst error": 100 * worst}


def _shard_bytes(run: Path) -> int:
    return Path(run, "shards", "main.sqlite").stat().st_size


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    made = act()
    return time.process_time() - start, made


def _store_all(store: TraceStore, episodes: Sequence[Episode]) -> None:
    for episode in episodes:
        store_whole(store, episode)


def _mean(episodes: Sequence[Episode], of: Callable[[Episode], float]) -> float:
    return sum(map(of, episodes)) / len(episodes)


def _answer(episode: Episode, place: int) -> Ids:
    return episode.turns[place].completion.ids_T


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _as_dict(row: _Row) -> dict[str, float]:
    return {name: getattr(row, name) for name in _Row.__slots__}


def _text(seed: int, count: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(_WORDS, count))


def talk(ids_T: Ids, request: Request) -> tuple[Ids, np.ndarray[Any, Any]]:
    """Say some words at once."""
    turn_T = ChatFormat.builtin().encode_turn(f"<action>{_text(len(ids_T) + request.seed, _SAYS)}</action>")
    return turn_T, np.random.default_rng(request.seed).random(len(turn_T), np.float32) - 1


def _talking(turns: int, words: int, count: int) -> TokenEnv:
    return TokenEnv(_Talker(count, words), ChatFormat.builtin(), max_steps=turns, max_context=1 << 20)


class _Talker:
    """Answer with so many words, whatever is done."""

    source = "talker"

    def __init__(self, count: int, words: int) -> None:
        self._count, self._words = count, words
        self._task, self._steps = "0", 0

    def tasks(self) -> Sequence[str]:
        """Return the ids."""
        return [str(number) for number in range(self._count)]

    def reset(self, task: str | None = None) -> TextObservation:
        """Begin."""
        self._task, self._steps = task or self._task, 0
        return self._said()

    def step(self, command: str) -> TextObservation:
        """Say more."""
        del command
        self._steps += 1
        return self._said()

    def clone(self) -> Self:
        """Copy it."""
        twin = type(self)(self._count, self._words)
        twin._task, twin._steps = self._task, self._steps
        return twin

    def task_info(self) -> Mapping[str, Any]:
        """Return the task."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Know nothing."""
        return None

    def _said(self) -> TextObservation:
        return TextObservation(_text(1000 * int(self._task) + self._steps, self._words))
