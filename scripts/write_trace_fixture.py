"""Write the trace that stands for a version of the format, and what a reader must find in it.

    python scripts/write_trace_fixture.py [--again]

Each version's folder under tests/trace/fixtures/ is written once, when the version is released, and then kept: a later
library must read it to the same content. `--again` replaces the folder of a version that nobody has used yet.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import re
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import (
    Edge,
    Episode,
    EpisodeHead,
    Failure,
    RunMeta,
    TraceStore,
    Turn,
    account,
    rows,
    sent_digest,
    verify,
)
from agentgym_tok.trace.redact import _Shard
from agentgym_tok.trace.schema import FORMAT
from agentgym_tok.types import Completion, Message, Sampling, Support, ToolCall

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "trace" / "fixtures"
ARCHIVE, EXPECTED = "run.tar.xz", "expected.json"

TOOLS = ({"name": "search", "parameters": {"q": {"type": "string"}}},)
PLAIN = Root("0123456789abcdef" * 4, 151_665)
WITH_TOOLS = Root(PLAIN.fingerprint, PLAIN.vocab_size, TOOLS)
IMAGE = b"\x89PNG\r\n\x1a\n what stands for a picture"
DRAWN = Sampling(temperature=0.7, top_p=0.9, top_k=40, max_tokens=64)
SILENT: dict[str, Any] = {"logprobs_T": None, "logprobs": "missing"}
META = RunMeta(
    fingerprint=PLAIN.fingerprint,
    vocab_size=PLAIN.vocab_size,
    chat="some/model",
    prompting="transcript",
    source="ALFWorld-synth",
    config={"policy": "hf:some/model", "seed": 7, "sampling": {"temperature": 0.7}},
    commit="5f2d1e0",
    library="0.1.0",
    created=1_700_000_000.25,
)


# ---- what is written


class Walk:
    """Build the turns of one episode, one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self._draw = np.random.default_rng(len(name))

    def ids(self, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return ids of one, two and three bytes; many of them repeat themselves, as text does."""
        drawn_T = (self._draw.zipf(1.2, size=min(count, 16)) % PLAIN.vocab_size).astype(np.int32)
        return np.resize(drawn_T, count)

    def opened(self, count: int, root: Root = PLAIN, replaced: int = 0) -> Context:
        """Return a new prompt."""
        return Context(root, Span(self.ids(count), "prompt", replaced=replaced))

    def after(self, turn: Turn, *spans: tuple[str, int]) -> Context:
        """Return the context that goes on from a turn."""
        answer = turn.completion
        context = turn.context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T))
        for origin, count in spans:
            context = context.extend(Span(self.ids(count), origin))  # type: ignore[arg-type]
        return context

    def add(self, context: Context, edge: Edge, said: int = 5, **fields: Any) -> Turn:
        """Append a turn; `fields` are its own or its completion's."""
        names = {part.name for part in dataclasses.fields(Completion)}
        logprobs_T = -self._draw.gamma(0.3, 1.2, size=said).astype(np.float32)
        answer = {"logprobs_T": logprobs_T, "logprobs": "raw", "sampling": DRAWN, "engine": "vllm 0.9"}
        answer |= {name: fields.pop(name) for name in names & fields.keys()}
        completion = Completion(self.ids(said), **answer)
        place = len(self.turns)
        fields = {"started": 10.0 * place, "ended": 10.0 * place + 0.125, "seed": 2**62 + place, **fields}
        digest = sent_digest(context.root, context.ids)
        self.turns.append(Turn(self.name, edge.target, context, digest, completion, edge, **fields))
        return self.turns[-1]


def walked() -> Walk:
    """Return an episode with every kind of edge, of answer and of message."""
    walk = Walk("walk")
    shown = hashlib.sha256(IMAGE).hexdigest()
    first = walk.opened(14, WITH_TOOLS, replaced=1)
    prompt = (
        Message("system", "Be brief. <|think|>", trusted=True, untrusted=((10, 19),)),
        Message("user", "A lone surrogate: \ud800, and ünïcödé: 漢字.", name="Ann", images=(shown,)),
    )
    walk.add(first, Edge("fresh_prompt", None, 0), 7, messages=prompt, used=False, format_ok=False, text="go \udc00")
    again = walk.add(
        first,
        Edge("retry", 0, 0, "no tags"),
        messages=prompt,
        attempt=1,
        text="<think>to the desk</think>go",
        action_text="go to desk 1",
        format_ok=True,
        valid_action=True,
        reward=0.1,
        weight_versions=(("step-1", 0, 2), ("step-2", 2, 5)),
        facts={"anchor": "You see a desk.", "passages": [1, 2.5, None, "\ud800"]},
        experts_T_L_K=np.arange(40).reshape(5, 4, 2) % 64,
        support=Support(np.array([2, 1, 0, 3, 1]), np.array([7, 9, 4, 151_664, 0, 1, 2])),
    )
    calls = (ToolCall("search", {"q": "lamp"}, "c1", '{"q": "lamp"}', (1, 4)), ToolCall("", None, status="malformed"))
    told = (
        Message("assistant", "I look it up.", tool_calls=calls, reasoning="Where is the lamp?"),
        Message("tool", "On the desk.", tool_call_id="c1"),
    )
    on = Edge("continuation", 0, 1)
    called = walk.add(walk.after(again, ("tool", 60)), on, messages=told, logprobs="processed", finish_reason="length")
    forced = walk.after(called, ("observation", 12), ("forced", 2))
    walk.add(forced, Edge("continuation", 1, 2), logprobs="sentinel")
    off = walk.opened(9)
    walk.add(off, Edge("auxiliary", 2, 3, "a title", place=0), 3)
    walk.add(walk.after(walk.turns[-2], ("tool", 8)), Edge("subagent_return", 2, 4, place=3), **SILENT, ids_exact=False)
    walk.add(walk.opened(8), Edge("compaction", 4, 5, "context full", place=3), origin="demonstration", **SILENT)
    walk.add(walk.opened(9), Edge("strip_reasoning", 5, 6, place=4), finish_reason="abort")
    broken = Failure("tool", "Timeout", "no answer in 30 s")
    walk.add(
        walk.opened(10), Edge("rerender", 5, 7, "the seam is no token", place=17), failure=broken, valid_action=False
    )
    walk.add(walk.opened(11), Edge("system_swap", 5, 8, declared=False, place=1), origin="forced", **SILENT)
    changed = walk.add(walk.opened(12, WITH_TOOLS), Edge("tools_change", 5, 9, declared=False, place=0))
    walk.add(walk.opened(13), Edge("unknown", None, 10, declared=False), 0, finish_reason="truncated", sampling=None)
    sure = {"logprobs_T": np.zeros(20, np.float32), "sampling": Sampling(temperature=0)}
    went = walk.add(walk.after(changed, ("observation", 60)), Edge("continuation", 9, 11), 20, **sure)
    walk.add(walk.after(went, ("observation", 0)), Edge("continuation", 11, 12), 40, reward=1.0, terminated=True)
    return walk


def helped(parent: Walk) -> Walk:
    """Return a subagent that begins in a past of its parent, and fails."""
    walk = Walk("helper")
    begun = walk.after(parent.turns[1], ("observation", 6))
    walk.add(begun, Edge("subagent_call", None, 0, "asked by walk"), messages=(Message("user", "Find the lamp."),))
    walk.add(
        walk.after(walk.turns[0], ("tool", 5)),
        Edge("continuation", 0, 1),
        reward=-0.5,
        truncated=True,
        truncation="steps",
    )
    return walk


def write(run: Path) -> None:
    """Write the run: two shards, episodes of every status."""
    walk = walked()
    helper = helped(walk)
    head = EpisodeHead(
        "walk", "look_at_obj/7", "ALFWorld-synth", "group-7", replica=1, seed=11, created=1_700_000_001.5
    )
    with TraceStore(run, meta=META, token_text=lambda index: f"<{index}>") as store:
        store.add_image(IMAGE, "image/png")
        store.begin(head)
        for turn in walk.turns:
            store.append(turn)
        store.finish("walk", "done", success=True)
        for name, status in (("left", "running"), ("given-up", "abandoned"), ("unlucky", "failed")):
            short = Walk(name)
            turn = short.add(walk.turns[0].context, Edge("fresh_prompt", None, 0), 3, **SILENT)
            store.begin(EpisodeHead(name, "look_at_obj/7", group_id="group-7", replica=2, created=1_700_000_002.0))
            store.append(turn)
            if status != "running":
                failure = Failure("world", "WorldError", "the game is gone") if status == "failed" else None
                store.finish(name, status, success=None, failure=failure)  # type: ignore[arg-type]
    with TraceStore(run, shard="worker-1") as store:
        store.begin(
            EpisodeHead("helper", "find", parent="walk", parent_turn=4, role="searcher", created=1_700_000_003.0)
        )
        for turn in helper.turns:
            store.append(turn)
        store.finish("helper", "failed", success=False, failure=Failure("policy", "PolicyError", "the engine is down"))
        told = Walk("told")
        support = Support(np.full(5, 2), np.arange(10))
        told.add(told.opened(6), Edge("fresh_prompt", None, 0), text="the key is k-1234", support=support)
        store.begin(EpisodeHead("told", "find", created=1_700_000_004.0))
        store.append(told.turns[0])
    redact_last(run / "shards" / "worker-1.sqlite")


def redact_last(path: Path) -> None:
    """Take the key out of the last turn; no tokenizer reads these ids, so their places are told."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        chat = ChatFormat.builtin()
        redaction = _Shard(connection, path, [re.compile(r"k-\d+")], chat, "keys", made=1_700_000_005.5)
        redaction._blank(connection.execute("SELECT max(id) FROM nodes").fetchone()[0], [2, 3])
        redaction.turns()
        connection.execute("VACUUM")


# ---- what is read


def content(run: Path) -> dict[str, Any]:
    """Return everything that this library reads from a run, as JSON-able values, numbers bit for bit."""
    with TraceStore(run, mode="r") as store:
        episodes = list(store.episodes())
        images = {name: store.image(name) for name in sorted(set(_images(episodes)))}
        read = {"meta": store.meta, "tokens": store.tokens(), "images": images, "episodes": episodes}
    cut = [("rl", "prefix", "rollout"), ("rl", "turn", "token"), ("sft", "prefix", "row")]
    made = {
        " ".join(options): [
            rows(episode, objective=objective, merge=merge, weighting=weighting)  # type: ignore[arg-type]
            for episode in episodes
        ]
        for options in cut
        for objective, merge, weighting in [options]
    }
    accounting = [account(episodes, "rl").to_dict(), account(episodes, "sft").to_dict()]
    proved = {name: value for name, value in verify(run).to_dict().items() if name != "run"}
    plain: dict[str, Any] = _plain({**read, "rows": made, "accounting": accounting, "verification": proved})
    return plain


def _images(episodes: list[Episode]) -> Iterator[str]:
    for episode in episodes:
        for turn in episode.turns:
            for message in turn.messages:
                yield from message.images


LATER = frozenset({"note"})
"""Fields that came after the fixture, and that a trace without them reads as empty."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        bits = value.dtype.kind == "f"
        return (
            {str(value.dtype): value.astype(value.dtype.newbyteorder("<")).tobytes().hex()} if bits else value.tolist()
        )
    if isinstance(value, Context):
        return {"root": _plain(value.root), "spans": _plain(value.spans), "digest": value.digest}
    if isinstance(value, Config):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value):
        cells = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
        return {name: _plain(cell) for name, cell in cells.items() if name not in LATER or cell}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def main() -> int:
    """Write the fixture of the current version; return 1 where it is there already."""
    folder = FIXTURES / f"{FORMAT[0]}.{FORMAT[1]}"
    if folder.exists() and "--again" not in sys.argv[1:]:
        print(f"{folder} is there already, and is kept")
        return 1
    with tempfile.TemporaryDirectory() as room:
        run = Path(room) / "run"
        write(run)
        expected = content(run)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz") as archive:
            for shard in sorted((run / "shards").glob("*.sqlite")):
                archive.add(shard, f"shards/{shard.name}", filter=_nobody)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ARCHIVE).write_bytes(packed.getvalue())
    (folder / EXPECTED).write_text(json.dumps(expected, sort_keys=True, separators=(",", ":")) + "\n", encoding="ascii")
    print(*(f"{file}: {file.stat().st_size} bytes" for file in sorted(folder.iterdir())), sep="\n")
    return 0


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    raise SystemExit(main())
