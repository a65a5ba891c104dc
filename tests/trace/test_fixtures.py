"""Old files stay readable: the kept trace of each version is read to exactly what it was written from."""

import dataclasses
import importlib.util
import json
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import ORIGINS
from agentgym_tok.trace import Edge, Episode, EpisodeHead, TraceStore, Turn, rows, verify
from agentgym_tok.trace.records import BOUNDARIES, EDGE_KINDS, ENDED
from agentgym_tok.trace.rows import MaskReason, mask_reason
from agentgym_tok.trace.schema import FORMAT
from agentgym_tok.types import Completion, FinishReason, LogprobKind, Message, ToolCall

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).with_name("fixtures")
VERSIONS = sorted(folder.name for folder in FIXTURES.iterdir())
CURRENT = f"{FORMAT[0]}.{FORMAT[1]}"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_trace_fixture", ROOT / "scripts" / "write_trace_fixture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unpack(version: str, folder: Path) -> Path:
    with tarfile.open(FIXTURES / version / "run.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def expected(version: str) -> Any:
    return json.loads((FIXTURES / version / "expected.json").read_text(encoding="ascii"))


def differences(told: Any, found: Any, place: str = "") -> Iterator[str]:
    """Yield where the content is not what was told; fields that the version did not have may have come since."""
    if isinstance(told, dict) and isinstance(found, dict):
        for name, value in told.items():
            if name not in found:
                yield f"{place}.{name} is gone"
            else:
                yield from differences(value, found[name], f"{place}.{name}")
    elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
        for index, (one, other) in enumerate(zip(told, found, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif type(told) is not type(found) or told != found:
        yield f"{place}: {found!r:.60} instead of {told!r:.60}"


def test_the_version_that_is_written_has_a_fixture() -> None:
    assert CURRENT in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_trace_is_read_to_what_it_was_written_from(version: str, script: ModuleType, tmp_path: Path) -> None:
    found = json.loads(json.dumps(script.content(unpack(version, tmp_path))))
    assert list(differences(expected(version), found)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_trace_verifies_and_a_changed_one_does_not(version: str, tmp_path: Path) -> None:
    run = unpack(version, tmp_path)
    assert verify(run).breaches == ()
    with sqlite3.connect(run / "shards" / "main.sqlite") as shard:
        shard.execute("UPDATE turns SET reward = reward + 1 WHERE id = 3")
    shard.close()
    assert [breach.turn for breach in verify(run).breaches] == [1]


def test_the_script_still_writes_the_fixture_of_this_version(script: ModuleType, tmp_path: Path) -> None:
    script.write(tmp_path)
    found = json.loads(json.dumps(script.content(tmp_path)))
    assert list(differences(expected(CURRENT), found)) == []
    assert list(differences(found, expected(CURRENT))) == []


def test_a_kept_trace_is_not_written_over(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(script, "FIXTURES", tmp_path)
    monkeypatch.setattr("sys.argv", ["write_trace_fixture.py"])
    assert script.main() == 0
    files = {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}
    assert {file.name for file in files} == {"run.tar.xz", "expected.json"}
    assert sum(map(len, files.values())) < 200_000
    assert script.main() == 1
    assert {file: file.read_bytes() for file in files} == files


# ---- that the test above can see a reader change its mind


@pytest.mark.parametrize(
    ("target", "change"),
    [
        ("encoding.unpack_ids", lambda unpacked: lambda blob, length: unpacked(blob, length)[::-1]),
        ("encoding.unpack_logprobs", lambda unpacked: lambda blob, length: np.nextafter(unpacked(blob, length), -9)),
        ("encoding._message_from", lambda read: lambda cells: dataclasses.replace(read(cells), trusted=False)),
        ("encoding._flag_from", lambda read: lambda value: bool(read(value))),
        ("encoding.Edge", lambda made: lambda *cells: made(*cells[:5])),
        ("evidence.Support", lambda made: lambda counts_T, ids_S: made(counts_T, ids_S[::-1])),
        ("rows._valid", lambda _: lambda turn: int(bool(turn.valid_action))),
        ("rows.mask_reason", lambda reason: lambda turn, objective: reason(turn, "sft")),
    ],
)
def test_a_reader_that_changes_its_mind_is_seen(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, change: Any
) -> None:
    run = unpack(CURRENT, tmp_path)
    proof = verify(run)  # beforehand, so that the content alone must tell
    monkeypatch.setattr(script, "verify", lambda _: proof)
    name, _, function = target.partition(".")
    module = importlib.import_module(f"agentgym_tok.trace.{name}")
    monkeypatch.setattr(module, function, change(getattr(module, function)))
    try:
        found = json.loads(json.dumps(script.content(run)))
    except TraceCorrupt:
        return  # the digests saw it first
    assert list(differences(expected(CURRENT), found)) != []


# ---- that the fixture holds everything


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    with TraceStore(unpack(CURRENT, tmp_path_factory.mktemp("kept")), mode="r") as store:
        roots = list(store.episodes())
    return [*roots, *(child for root in roots for child in root.children)]


def test_the_fixture_has_every_word_that_a_cell_can_hold(episodes: list[Episode]) -> None:
    turns = [turn for episode in episodes for turn in episode.turns]
    failures = [record.failure for record in (*episodes, *turns) if record.failure is not None]
    assert {turn.edge.kind for turn in turns} == EDGE_KINDS
    assert {episode.status for episode in episodes} == ENDED | {"running"}
    assert {span.origin for turn in turns for span in turn.context.spans} | {
        turn.completion.origin for turn in turns
    } == set(ORIGINS)
    assert {turn.completion.finish_reason for turn in turns} == set(get_args(FinishReason))
    assert {turn.completion.logprobs for turn in turns} == set(get_args(LogprobKind))
    assert {failure.boundary for failure in failures} <= BOUNDARIES
    assert len({failure.boundary for failure in failures}) == 3
    assert {mask_reason(turn, "rl") for turn in turns} == {None, *get_args(MaskReason)}


def test_no_field_has_its_default_throughout(episodes: list[Episode], script: ModuleType) -> None:
    turns = [turn for episode in episodes for turn in episode.turns]
    messages = [message for turn in turns for message in turn.messages]
    found: dict[type, list[Any]] = {
        Turn: turns,
        Edge: [turn.edge for turn in turns],
        Completion: [turn.completion for turn in turns],
        Message: messages,
        ToolCall: [call for message in messages for call in message.tool_calls],
        EpisodeHead: [episode.head for episode in episodes],
    }
    for kind, records in found.items():
        for part in (part for part in dataclasses.fields(kind) if part.name not in script.LATER):
            values = [getattr(record, part.name) for record in records]
            assert any(value is not part.default and _unlike(value, part.default) for value in values), part.name
    assert any(span.replaced for turn in turns for span in turn.context.spans)
    assert any(row.experts_T_L_K is not None for episode in episodes for row in rows(episode, merge="turn"))


def _unlike(value: Any, default: Any) -> bool:
    return isinstance(value, np.ndarray) or value != default


def test_the_fixture_uses_every_codec(tmp_path: Path) -> None:
    with sqlite3.connect(unpack(CURRENT, tmp_path) / "shards" / "main.sqlite") as shard:
        codecs = {
            column: {blob[0] for (blob,) in shard.execute(f"SELECT {column} FROM nodes WHERE {column} IS NOT NULL")}
            for column in ("ids", "logprobs")
        }
    shard.close()
    assert codecs == {"ids": {1, 2}, "logprobs": {1, 2, 3}}
