"""Makers of turns and random trees of contexts, for all tests of traces."""

import contextlib
import hashlib
import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import strategies as st

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import TraceError
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import Edge, Episode, EpisodeHead, Failure, RunMeta, TraceStore, Turn, sent_digest
from agentgym_tok.trace.redact import _Shard
from agentgym_tok.types import Completion, Message, Sampling, Support, ToolCall

FINGERPRINT, VOCAB = "f" * 64, 5000
ROOT = Root(FINGERPRINT, VOCAB)
IMAGE, IMAGE_TYPE = b"\x89PNG what stands for an image", "image/png"
IMAGE_NAME = hashlib.sha256(IMAGE).hexdigest()
TOOLS = Root(FINGERPRINT, VOCAB, ({"name": "search", "parameters": {"q": "string"}},))


def _turn(
    episode: str,
    index: int,
    context: Context,
    ids: list[int],
    *,
    logprobs: list[float] | None = None,
    edge: Edge | None = None,
    completion: dict[str, Any] | None = None,
    **fields: Any,
) -> Turn:
    logprobs = [-0.5 - 0.25 * place for place in range(len(ids))] if logprobs is None else logprobs
    parts = {"logprobs_T": logprobs, "logprobs": "raw", "sampling": Sampling(temperature=0.7), **(completion or {})}
    if edge is None:
        edge = Edge("continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0)
    fields.setdefault("sent_digest", sent_digest(context.root, context.ids))
    return Turn(episode, index, context, completion=Completion(np.array(ids, np.int32), **parts), edge=edge, **fields)


def _prompt(*ids: int, root: Root = ROOT) -> Context:
    return Context(root, Span(np.array(ids, np.int32), "prompt"))


def _after(turn: Turn, *ids: int) -> Context:
    answer = turn.completion
    return turn.context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T)).extend(
        Span(np.array(ids, np.int32), "observation")
    )


def _rich_turns(name: str) -> list[Turn]:
    """Return turns in which no field has its default."""
    first = _turn(
        name,
        0,
        _prompt(*range(100, 180), root=TOOLS),
        [7, 8, 4999],
        messages=(
            Message("system", "Be brief.", trusted=True),
            Message("user", "a \ud800 lone surrogate and ünïcödé"),
            Message(
                "assistant",
                "I see a desk.",
                tool_calls=(ToolCall("search", {"q": "x"}, "c1", "{}", (1, 2), "unclosed"), ToolCall("look", None)),
                tool_call_id="c0",
                name="Ann",
                reasoning="r",
                trusted=True,
                untrusted=((2, 5), (6, 7)),
                images=(IMAGE_NAME,),
            ),
        ),
        text="go",
        action_text="go to desk 1",
        format_ok=True,
        valid_action=False,
        reward=0.1,
        used=False,
        seed=2**62 + 1,
        started=1.5,
        ended=2.25,
        completion={
            "weight_versions": (("v1", 0, 1), ("v2", 1, 3)),
            "engine": "stub 1",
            "finish_reason": "length",
            "experts_T_L_K": np.arange(12).reshape(3, 2, 2) + 250,
            "support": Support(np.array([2, 0, 1]), np.array([7, 9, 4999])),
            "sampling": Sampling(temperature=0.7, stop=("</a>", "ü\n")),
            "note": "guessed: ü",
        },
        facts={"anchor": "You see a desk.", "passages": [1, 2.5, None]},
        failure=Failure("world", "Timeout", "no answer"),
    )
    second = replace(
        first, attempt=1, used=True, edge=Edge("retry", 0, 0, "timeout", declared=False, place=3), failure=None
    )
    third = _turn(
        name,
        1,
        _after(second, *range(200, 230)),
        [9, 2],
        truncated=True,
        truncation="steps",
        terminated=True,
        reward=1.0,
        messages=(Message("user", "You are at desk 1."),),
    )
    return [first, second, third]


def _same_span(one: Span, other: Span) -> bool:
    return (
        one.origin == other.origin
        and one.replaced == other.replaced
        and one.ids_T.tobytes() == other.ids_T.tobytes()
        and _same_floats(one.logprobs_T, other.logprobs_T)
    )


def _same_floats(one: Any, other: Any) -> bool:
    return one is other is None or (one is not None and other is not None and one.tobytes() == other.tobytes())


def _same_support(one: Support | None, other: Support | None) -> bool:
    if one is None or other is None:
        return one is other
    return _same_floats(one.counts_T, other.counts_T) and _same_floats(one.ids_S, other.ids_S)


def _same_turn(one: Turn, other: Turn) -> bool:
    """Compare bit for bit: spans, not only ids; float patterns, not only values."""
    arrays = ("ids_T", "logprobs_T", "experts_T_L_K", "support")
    plain = [name for name in Completion.__dataclass_fields__ if name not in arrays]
    rest = [name for name in Turn.__dataclass_fields__ if name not in ("context", "completion")]
    return (
        one.context.root == other.context.root
        and len(one.context.spans) == len(other.context.spans)
        and all(map(_same_span, one.context.spans, other.context.spans))
        and one.completion.ids_T.tobytes() == other.completion.ids_T.tobytes()
        and _same_floats(one.completion.logprobs_T, other.completion.logprobs_T)
        and _same_floats(one.completion.experts_T_L_K, other.completion.experts_T_L_K)
        and _same_support(one.completion.support, other.completion.support)
        and all(getattr(one.completion, name) == getattr(other.completion, name) for name in plain)
        and all(getattr(one, name) == getattr(other, name) for name in rest)
    )


@dataclass
class Tree:
    """Draw random walks: few different ids, so that contexts and answers meet by chance."""

    data: st.DataObject
    starts: list[Context] = field(default_factory=list)

    def ids(self, low: int = 0, high: int = 4) -> list[int]:
        return self.data.draw(st.lists(st.integers(0, 2), min_size=low, max_size=high))

    def chance(self, percent: int) -> bool:
        return self.data.draw(st.integers(0, 99)) < percent

    def pick(self, *values: Any) -> Any:
        return self.data.draw(st.sampled_from(values))

    def start(self) -> Context:
        if not self.starts or self.chance(50):
            self.starts.append(_prompt(*self.ids(1), root=self.pick(ROOT, TOOLS)))
        return self.pick(*self.starts)

    def answer(self, context: Context) -> dict[str, Any]:
        ids = self.ids()
        kind = self.pick("raw", "raw", "raw", "processed", "sentinel", "missing")
        logprobs = None if kind == "missing" else [self.pick(-0.0, -0.1, -1e-30, -12.5) for _ in ids]
        cut = self.data.draw(st.integers(0, len(ids)))
        completion = Completion(
            np.array(ids, np.int32),
            None if logprobs is None else np.array(logprobs, np.float32),
            finish_reason=self.pick("stop", "stop", "length", "truncated", "abort"),
            weight_versions=(("a", 0, cut), ("b", cut, len(ids))) if self.chance(50) else (),
            ids_exact=not self.chance(10),
            logprobs=kind,
            engine=self.pick("", "stub"),
            sampling=None if self.chance(10) else Sampling(temperature=self.pick(0.0, 1.0)),
            origin=self.pick("sampled", "sampled", "sampled", "demonstration", "forced"),
        )
        return {"context": context, "completion": completion, "sent_digest": sent_digest(context.root, context.ids)}

    def go_on(self, turn: Turn) -> Context:
        """Continue a turn as a harness would, or one that lost the log-probabilities, or one in another process."""
        completion = turn.completion
        keep = completion.logprobs_T if self.chance(70) else None
        context = turn.context.extend(Span(completion.ids_T, completion.origin, keep))
        if self.chance(80):
            context = context.extend(Span(np.array(self.ids(), np.int32), self.pick("observation", "tool")))
        if self.chance(20):
            context = context.extend(Span(np.array(self.ids(1, 2), np.int32), "forced"))
        return pickle.loads(pickle.dumps(context)) if self.chance(30) else context

    def turns(self, name: str) -> list[Turn]:
        turns: list[Turn] = []
        steps: list[Turn] = []
        for index in range(self.data.draw(st.integers(0, 6))):
            if steps and self.chance(70):
                source = self.data.draw(st.integers(max(0, index - 2), index - 1))
                context, edge = self.go_on(steps[source]), Edge("continuation", source, index)
            else:
                kind = self.pick("fresh_prompt", "compaction", "auxiliary", "rerender", "unknown")
                context, edge = self.start(), Edge(kind, index - 1 if index else None, index)
            attempts = self.pick(1, 1, 1, 2, 3)
            for attempt in range(attempts):
                if attempt:
                    edge = Edge("retry", index, index)
                turns.append(
                    Turn(
                        name,
                        index,
                        edge=edge,
                        **self.answer(context),
                        reward=self.pick(0.0, 0.0, 1.0, -0.1),
                        attempt=attempt,
                        used=attempt == attempts - 1 and not self.chance(10),
                        failure=Failure("tool", "Broken") if self.chance(5) else None,
                        facts={"k": index} if self.chance(20) else {},
                    )
                )
            steps.append(turns[-1])
        return turns

    def forest(self) -> list[tuple[EpisodeHead, list[Turn]]]:
        forest: list[tuple[EpisodeHead, list[Turn]]] = []
        for place in range(self.data.draw(st.integers(1, 3))):
            parent = self.pick(None, *(head.id for head, _ in forest))
            head = EpisodeHead(f"e{place}", "task", group_id="g", replica=place, parent=parent, created=1.0)
            forest.append((head, self.turns(head.id)))
        return forest


def _head(name: str, **fields: Any) -> EpisodeHead:
    return EpisodeHead(name, "task", created=1.0, **fields)


def _story(name: str) -> list[tuple[Any, ...]]:
    """Return the steps of writing an episode with two attempts, a subagent, a compaction and an end."""
    retried, first, second = _rich_turns(name)
    inner = f"{name}-sub"
    edge = Edge("compaction", 1, 2)
    return [
        ("add_image", IMAGE, IMAGE_TYPE),
        ("begin", _head(name)),
        ("append", retried),
        ("append", first),
        ("begin", _head(inner, parent=name, parent_turn=0)),
        ("append", _turn(inner, 0, _after(first, *range(300, 400)), [5, 6], text="y" * 3000)),
        ("finish", inner, "failed", False, Failure("policy", "Down", "no answer")),
        ("append", second),
        ("append", _turn(name, 2, _prompt(*range(100, 150), root=TOOLS), list(range(900)), edge=edge, text="x" * 6000)),
        ("finish", name, "done", True),
    ]


def _told(steps: Iterable[tuple[Any, ...]]) -> dict[str, Episode]:
    """Return the episodes that these steps make."""
    episodes: dict[str, Episode] = {}
    for method, subject, *end in steps:
        if method == "begin":
            episodes[subject.id] = Episode(head=subject, turns=(), status="running")
        elif method == "append":
            episode = episodes[subject.episode]
            episodes[subject.episode] = replace(episode, turns=(*episode.turns, subject))
        elif method == "finish":
            names = ("status", "success", "failure")
            episodes[subject] = replace(episodes[subject], **dict(zip(names, end, strict=False)))
    return episodes


def _read(run: Path) -> dict[str, Episode]:
    """Return all episodes of a run; none where nothing was ever committed."""
    try:
        store = TraceStore(run, mode="r")
    except TraceError as error:
        if error.what == "there is no trace":
            return {}
        raise
    with store:
        return {head.id: store.episode(head.id) for head, _ in store.heads()}


def _same_episodes(some: dict[str, Episode], others: dict[str, Episode]) -> bool:
    return some.keys() == others.keys() and all(_same_episode(some[name], others[name]) for name in some)


def _same_episode(one: Episode, other: Episode) -> bool:
    return (
        all(getattr(one, name) == getattr(other, name) for name in ("head", "status", "success", "failure"))
        and len(one.turns) == len(other.turns)
        and all(map(_same_turn, one.turns, other.turns))
    )


class Child:
    """A process that forks a writer for each request, see `child.py`."""

    def __init__(self, **environment: str) -> None:
        self.environment = {**os.environ, **environment}
        self._start()

    def _start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("child.py"))]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=self.environment)
        self.busy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def write(self, run: Path, names: list[str], **request: Any) -> Iterator[dict[str, Any]]:
        """Write stories in a process of their own; yield what it says, at last its exit status."""
        return self._ask("write", run=str(run), names=names, **request)

    def read(self, run: Path, fault: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Verify and read a run in a process of its own."""
        return self._ask("read", run=str(run), fault=fault)

    def _ask(self, act: str, **request: Any) -> Iterator[dict[str, Any]]:
        if self.busy:  # a test failed and left its writer waiting
            self.__exit__()
            self._start()
        self.busy = True
        self.tell(json.dumps([act, request]))
        while self.busy:
            said = json.loads(self.process.stdout.readline())
            if "ended" in said:
                self.tell("bury")
                continue
            self.busy = "status" not in said
            yield said


class Make:
    """What tests make traces of."""

    story = staticmethod(_story)
    told = staticmethod(_told)
    read = staticmethod(_read)
    same_episodes = staticmethod(_same_episodes)
    child = Child

    root = ROOT
    meta = RunMeta(fingerprint=FINGERPRINT, vocab_size=VOCAB, created=1.0)
    head = staticmethod(_head)
    turn = staticmethod(_turn)
    prompt = staticmethod(_prompt)
    after = staticmethod(_after)
    rich_turns = staticmethod(_rich_turns)
    image = (IMAGE, IMAGE_TYPE)
    same_turn = staticmethod(_same_turn)
    tree = Tree

    def episode(self, turns: list[Turn], **fields: Any) -> Episode:
        return Episode(**{"head": self.head(turns[0].episode), "turns": tuple(turns), "status": "done", **fields})

    def run(self, folder: Path) -> Path:
        """Write a run in which every cell of every table is filled."""
        with TraceStore(folder, meta=self.meta, token_text=lambda index: f"<{index}>") as store:
            assert store.add_image(IMAGE, IMAGE_TYPE) == IMAGE_NAME
            for name, parent in (("one", None), ("two", "one"), ("three", None)):
                store.begin(
                    self.head(
                        name, source="synth", group_id="g", seed=5, parent=parent, parent_turn=0 if parent else None
                    )
                )
                for turn in _rich_turns(name):
                    store.append(turn)
            store.begin(self.head("four"))
            support = Support(np.array([1, 2]), np.array([7, 8, 9]))
            facts, said = {"anchor": "the word"}, "the word is here"
            store.append(
                _turn("four", 0, _prompt(50, 51), [7, 8], text=said, facts=facts, completion={"support": support})
            )
            store.finish("one", "done", success=True)
            store.finish("two", "failed", success=False, failure=Failure("policy", "Down", "no answer"))
        self.redact_four(folder)
        return folder

    def redact_four(self, folder: Path) -> None:
        """Take a word out of the last turn; the public way needs a chat format that can read the ids."""
        path = folder / "shards" / "main.sqlite"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            shard = _Shard(connection, path, [re.compile("the word")], ChatFormat.builtin(), "a word")
            shard._blank(connection.execute("SELECT max(id) FROM nodes").fetchone()[0], [1])
            shard.turns()


@pytest.fixture(scope="session")
def make() -> Make:
    """Return the makers."""
    return Make()
