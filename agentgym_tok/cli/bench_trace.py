"""`agentgym-tok bench trace`: what the trace of long conversations costs, in bytes and in time."""

import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from rich.table import Table

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import load_average, write_figures
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import ALFWorldEngine, SynthGames
from agentgym_tok.tokens import Context, Ids, Root, Span
from agentgym_tok.trace import Edge, EpisodeHead, TraceStore, Turn, rows, sent_digest, verify
from agentgym_tok.types import Completion, Message, Sampling

__all__ = ["Options", "run"]

_SHARE = 0.15
_BUDGET = (2, 4)
"""Bytes that an id and a log-probability may cost."""
_FOR_PEOPLE = ("texts", "tokens")
"""Tables that hold texts for people."""


class Options(Config):
    """Write conversations into a fresh trace, read and verify it, and count where its bytes went.

    15 % of the ids are sampled, with log-probabilities. Bytes of ids and of log-probabilities are those of their packed
    blobs. Texts for people (messages, token texts) are written too, and counted apart with the pages that hold them.
    All the rest of the file is the rest: numbers, hashes, indexes, page slack. The JSON that it is compared with holds,
    for each call, the whole prompt's ids, the sampled ids and their log-probabilities, and no text.
    """

    chat: str = Field(default="builtin", description="builtin, or a model's folder or id (extra hf)")
    text: Literal["prose", "world"] = Field(
        default="prose", description="where ids come from: prose (Python's own manual) or world (ALFWorld, repetitive)"
    )
    conversations: int = Field(default=20, ge=1, description="conversations of each length")
    turns: int = Field(default=128, ge=1, description="turns of a conversation")
    new_ids: list[int] = Field(default=[540, 90], description="ids that each turn adds; measured one after the other")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    chat = chat_format(options.chat)
    pool = _Pool(chat, _prose() if options.text == "prose" else _world())
    load = load_average()
    measured: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, dict[str, int]]] = {}
    for new in options.new_ids:
        walks = [conversation(pool, f"c{number}", options.turns, new) for number in range(options.conversations)]
        with tempfile.TemporaryDirectory() as folder:
            name = f"{new} new ids a turn"
            measured[name], tables[name] = measure(Path(folder), chat, walks)
    shape = f"{options.conversations} conversations of {options.turns} turns, {options.text}"
    table = Table(title=f"{shape}, {Path(options.chat).name}, load {load:.1f}", title_justify="left")
    table.add_column("figure")
    for name in measured:
        table.add_column(name, justify="right")
    for figure in next(iter(measured.values())):
        table.add_row(figure, *(_number(figures[figure]) for figures in measured.values()))
    show(table)
    for name, found in tables.items():
        _show_tables(name, found)
    write_figures(options.out, options, {"load": load, "figures": measured, "tables": tables})
    return 0


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _show_tables(name: str, found: dict[str, dict[str, int]]) -> None:
    table = Table(title=f"pages of the file, {name}", title_justify="left")
    for column in ("table or index", "bytes", "content", "unused"):
        table.add_column(column, justify="left" if column == "table or index" else "right")
    for entry, sizes in sorted(found.items(), key=lambda item: -item[1]["bytes"]):
        table.add_row(entry, *(f"{sizes[column]:,}" for column in ("bytes", "content", "unused")))
    if found:
        show(table)


# ---- what is written


class _Pool:
    """Hand out ids of a text, one piece after the other, from its beginning again where it ends."""

    def __init__(self, chat: ChatFormat, text: str) -> None:
        self.chat = chat
        self.draw = np.random.default_rng(0)
        self._ids_T = chat.encode(text)
        self._place = 0

    def take(self, count: int) -> tuple[Ids, str]:
        """Return so many ids, and their text."""
        places = np.arange(self._place, self._place + count) % len(self._ids_T)
        self._place = int(places[-1] + 1) if count else self._place
        ids_T = self._ids_T[places]
        return ids_T, self.chat.decode(ids_T)

    def logprobs(self, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return log-probabilities, 0.4 nats each on average, most near 0; every bit of their mantissas is random."""
        return -self.draw.gamma(0.3, 1.2, size=count).astype(np.float32)


def _prose() -> str:
    from pydoc_data.topics import topics  # noqa: PLC0415  # half a megabyte, and needed here only

    return "\n".join(topics[name] for name in sorted(topics))


def _world() -> str:
    engine = ALFWorldEngine(SynthGames("train"))
    return "\n".join(_episodes(engine, 200))


def _episodes(engine: ALFWorldEngine, count: int) -> Iterator[str]:
    for task in engine.tasks()[:count]:
        observation = engine.reset(task)
        yield observation.text
        while not observation.terminated and (command := engine.expert_command()) is not None:
            observation = engine.step(command)
            yield f"{command}\n{observation.text}\n{', '.join(observation.admissible_commands)}"


def conversation(pool: _Pool, name: str, turns: int, new: int) -> list[Turn]:
    """Return a conversation that only grows.

    Args:
        pool: Where its ids come from.
        name: Id of the episode.
        turns: How many.
        new: Ids that each adds, sampled ones included.
    """
    said = max(1, round(_SHARE * new))
    root = Root(pool.chat.fingerprint, pool.chat.vocab_size)
    context: Context | None = None
    walk: list[Turn] = []
    for index in range(turns):
        seen_T, text = pool.take(max(1, new - said))
        span = Span(seen_T, "observation" if context else "prompt")
        context = Context(root, span, context)
        answer_T, answer = pool.take(said)
        completion = Completion(
            answer_T,
            pool.logprobs(said),
            weight_versions=(("0", 0, said),),
            logprobs="raw",
            engine="bench",
            sampling=Sampling(),
        )
        edge = Edge("continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0)
        walk.append(
            Turn(
                name,
                index,
                context,
                sent_digest(root, context.ids),
                completion,
                edge,
                messages=(Message("user", text),),
                text=answer,
                action_text=answer,
                format_ok=True,
                valid_action=True,
                seed=int(pool.draw.integers(2**62)),
                started=1e9 + index,
                ended=1e9 + index + 0.5,
            )
        )
        context = context.sampled(answer_T, completion.logprobs_T)
    return walk


# ---- what is measured


def measure(
    folder: Path, chat: ChatFormat, walks: Sequence[Sequence[Turn]]
) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    """Write, read and verify conversations.

    Args:
        folder: Where the run goes.
        chat: Its format.
        walks: The turns of each conversation.

    Returns:
        Figures by name; bytes of the file by table and index, where this SQLite can tell (`dbstat`).
    """
    turns = sum(map(len, walks))
    clocks = {name: _Clock() for name in ("append with commit", "read", "rows", "verify")}
    with TraceStore(folder, chat=chat) as store:
        for walk in walks:
            store.begin(EpisodeHead(walk[0].episode, "bench"))
            with clocks["append with commit"]:
                for turn in walk:
                    store.append(turn)
            store.finish(walk[0].episode)
    with TraceStore(folder, mode="r") as store:
        with clocks["read"]:
            episodes = list(store.episodes())
        with clocks["rows"]:
            for episode in episodes:
                rows(episode)
    with clocks["verify"]:
        verified = verify(folder)
    assert verified.ok
    figures, tables = _sizes(folder / "shards" / "main.sqlite", turns)
    json_bytes = sum(map(_json_size, walks))
    figures["JSON with whole prompts, bytes"] = json_bytes
    figures["JSON, times the file"] = json_bytes / figures["file, bytes"]
    figures["JSON, times the file but texts"] = json_bytes / figures["file but texts, bytes"]
    for name, clock in clocks.items():
        figures[f"{name}, turns/s of CPU"] = turns / clock.cpu
        figures[f"{name}, turns/s"] = turns / clock.wall
    return figures, tables


def _sizes(shard: Path, turns: int) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    with contextlib.closing(sqlite3.connect(f"file:{shard}?mode=ro", uri=True)) as connection:
        ids, ids_bytes, logprobs, logprobs_bytes = connection.execute(
            "SELECT sum(length), sum(length(ids)), sum(iif(logprobs IS NULL, 0, length)), sum(length(logprobs))"
            " FROM nodes"
        ).fetchone()
        (texts,) = connection.execute("SELECT sum(length(CAST(body AS BLOB))) FROM texts").fetchone()
        tables = _tables(connection)
    people = sum(tables[name]["bytes"] for name in _FOR_PEOPLE) if tables else texts
    size = shard.stat().st_size
    budget = _BUDGET[0] * ids + _BUDGET[1] * logprobs
    figures = {
        "ids": ids,
        "log-probabilities": logprobs,
        "bytes an id": ids_bytes / ids,
        "bytes a log-probability": logprobs_bytes / logprobs,
        "texts for people, bytes a turn": people / turns,
        "the rest, bytes a turn": (size - people - ids_bytes - logprobs_bytes) / turns,
        "file, bytes": size,
        "file but texts, bytes": size - people,
        "file but texts, % of 2 bytes an id and 4 a log-probability": 100 * (size - people) / budget,
    }
    return figures, tables


def _tables(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    query = "SELECT name, sum(pgsize), sum(payload), sum(unused) FROM dbstat GROUP BY name"
    try:
        found = connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # this SQLite was built without it
        return {}
    return {name: {"bytes": size, "content": content, "unused": unused} for name, size, content, unused in found}


def _json_size(walk: Sequence[Turn]) -> int:
    """Return the bytes of compact JSON that repeats the whole prompt at each call, without writing it."""
    size = 0
    for turn in walk:
        completion = turn.completion
        assert completion.logprobs_T is not None
        record = {"prompt": [], "completion": completion.ids_T.tolist(), "logprobs": completion.logprobs_T.tolist()}
        size += len(json.dumps(record, separators=(",", ":")))
        size += sum(_digits(span.ids_T) for span in turn.context.spans) - 1
    return size


def _digits(ids_T: Ids) -> int:
    """Return the digits of ids, and a comma for each."""
    return int((np.floor(np.log10(np.maximum(ids_T, 1))) + 2).sum())


class _Clock:
    """Add up the times in which a block runs, in seconds."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def __enter__(self) -> None:
        self._start = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.cpu += time.process_time() - self._start[0]
        self.wall += time.perf_counter() - self._start[1]
