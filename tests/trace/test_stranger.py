"""Whoever has read docs/design/trace.md can read and check a shard, without our code."""

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.trace import TraceStore

HEAD = ["name", "task", "source", "group_id", "replica", "seed", "parent", "parent_turn", "role", "created"]
TURN = [
    "turn",
    "attempt",
    "used",
    "sent",
    "finish_reason",
    "ids_exact",
    "logprob_kind",
    "versions",
    "edge",
    "edge_source",
    "edge_declared",
    "edge_place",
    "format_ok",
    "valid_action",
    "reward",
    "terminated",
    "truncated",
    "truncation",
    "seed",
    "started",
    "ended",
    "evidence",
    "texts",
]


def seal(before: bytes, values: list[Any], size: int = 32) -> bytes:
    out = before
    for value in values:
        if value is None:
            out += b"\x00"
        elif isinstance(value, int):
            out += b"\x01" + struct.pack("<q", value)
        elif isinstance(value, float):
            out += b"\x02" + struct.pack("<d", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += (b"\x03" if isinstance(value, str) else b"\x04") + struct.pack("<Q", len(data)) + data
    return hashlib.blake2b(out, digest_size=size).digest()


def inflated(blob: bytes) -> bytes:
    return blob[1:] if blob[0] == 1 else zlib.decompress(blob[1:], wbits=-15)


def ids_of(node: sqlite3.Row) -> list[int]:
    ids, value, shift = [], 0, 0
    for byte in inflated(node["ids"]):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            ids.append(value)
            value = shift = 0
    assert len(ids) == node["length"]
    return ids


def logprobs_of(node: sqlite3.Row) -> bytes | None:
    if node["logprobs"] is None:
        return None
    blob, length = node["logprobs"], node["length"]
    planes = blob[1 : 1 + 3 * length] + inflated(b"\2" + blob[1 + 3 * length :]) if blob[0] == 3 else inflated(blob)
    return bytes(planes[plane * length + place] for place in range(length) for plane in range(4))


@pytest.fixture
def shard(make: Any, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    make.run(tmp_path)
    connection = sqlite3.connect(tmp_path / "shards" / "main.sqlite")
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


def redactions(shard: sqlite3.Connection) -> dict[tuple[str, int], bytes]:
    return {(row["kind"], row["record"]): row["body"] for row in shard.execute("SELECT * FROM redactions")}


def test_every_digest_can_be_recomputed(shard: sqlite3.Connection) -> None:
    small = {"meta": ["name", "body"], "tokens": ["id", "text"], "roots": ["fingerprint", "vocab_size", "tools"]}
    for name, columns in small.items():
        for row in shard.execute(f"SELECT * FROM {name}"):
            cells = [row[column] for column in columns]
            assert seal(b"", cells, 16) == row["digest"]
    redacted = redactions(shard)
    digests: dict[int, bytes] = {}
    roots = {row["id"]: row["digest"] for row in shard.execute("SELECT * FROM roots")}
    for node in shard.execute("SELECT * FROM nodes ORDER BY id"):
        before = roots[node["root"]] if node["parent"] is None else digests[node["parent"]]
        ids = ids_of(node)
        cells = [node["origin"], node["replaced"], struct.pack(f"<{len(ids)}i", *ids), logprobs_of(node)]
        digests[node["id"]] = node["digest"]
        assert seal(before, cells, 16) == redacted.get(("nodes", node["id"]), node["digest"])


def test_every_chain_can_be_recomputed(shard: sqlite3.Connection) -> None:
    nodes = {row["id"]: row for row in shard.execute("SELECT * FROM nodes")}
    settings = {row["id"]: row["body"] for row in shard.execute("SELECT * FROM settings")}
    texts = {row["turn"]: row["body"] for row in shard.execute("SELECT * FROM texts")}
    redacted = redactions(shard)
    for episode in shard.execute("SELECT * FROM episodes").fetchall():
        tip = seal(b"", [episode[column] for column in HEAD])
        for turn in shard.execute("SELECT * FROM turns WHERE episode = ? ORDER BY seq", (episode["id"],)):
            assert seal(b"", [texts[turn["id"]]], 16) == redacted.get(("texts", turn["id"]), turn["texts"])
            references = [
                nodes[turn["context"]]["digest"],
                nodes[turn["completion"]]["digest"],
                settings[turn["settings"]],
            ]
            tip = seal(tip, [*references, *(turn[column] for column in TURN)])
            assert tip == turn["hash"]
        if episode["status"] != "running":
            tip = seal(tip, [episode["status"], episode["success"], episode["failure"]])
        assert tip == episode["tip"]


def test_contexts_and_what_the_engine_was_handed_can_be_read(shard: sqlite3.Connection, tmp_path: Path) -> None:
    nodes = {row["id"]: row for row in shard.execute("SELECT * FROM nodes")}
    roots = {row["id"]: row for row in shard.execute("SELECT * FROM roots")}
    with TraceStore(tmp_path, mode="r") as store:
        turns = iter([turn for name in ("one", "two", "three", "four") for turn in store.episode(name).turns])
    for turn in shard.execute("SELECT * FROM turns ORDER BY id"):
        ids: list[int] = []
        node = nodes[turn["context"]]
        while True:
            ids = ids_of(node) + ids
            if node["parent"] is None:
                break
            node = nodes[node["parent"]]
        root = roots[node["root"]]
        tools = json.dumps(json.loads(root["tools"]), sort_keys=True, ensure_ascii=False).encode()
        digest = hashlib.sha256(tools).hexdigest()[:32] if json.loads(root["tools"]) else ""
        header = f"{root['fingerprint']}\n{digest}\n".encode()
        handed = hashlib.blake2b(header + struct.pack(f"<{len(ids)}i", *ids), digest_size=16)
        assert handed.digest() == turn["sent"]
        assert nodes[turn["completion"]]["parent"] == turn["context"]
        assert next(turns).context.ids.tolist() == ids
