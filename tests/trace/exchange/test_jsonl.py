"""A log of records says all that a run holds, to any reader, and never anything else."""

import hashlib
import json
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.trace import Episode, TraceStore, verify
from agentgym_tok.trace.codec import pack_ids, pack_logprobs, unpack_logprobs
from agentgym_tok.trace.exchange.cells import Record, record_from
from agentgym_tok.trace.exchange.json_schema import json_schema_text
from agentgym_tok.trace.exchange.jsonl import export_jsonl, import_jsonl, line

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "trace.schema.json"


def tips(run: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for path in (run / "shards").glob("*.sqlite"):
        connection = sqlite3.connect(path)
        found += connection.execute("SELECT name, status, success, failure, turns, tip FROM episodes").fetchall()
        connection.close()
    return sorted(found)


def episodes(run: Path) -> dict[str, Episode]:
    with TraceStore(run, mode="r") as store:
        return {head.id: store.episode(head.id) for head, _ in store.heads()}


def small(make: Any, folder: Path) -> Path:
    """Write two episodes of three turns with few ids."""
    with TraceStore(folder, meta=make.meta, token_text=str) as store:
        for name, parent in (("a", None), ("ü", "a")):
            store.begin(make.head(name, parent=parent))
            first = make.turn(name, 0, make.prompt(1, 2), [3], facts={"anchor": "\ud800"})
            store.append(first)
            store.append(make.turn(name, 1, make.after(first, 4), [5, 6], logprobs=[-0.0, -1e-30]))
        store.finish("a", success=True)
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the waiting for the disk."""
    monkeypatch.setattr("agentgym_tok.trace.drafts._sync", lambda _path: None)


@pytest.fixture(scope="module")
def full(make: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Episode], bytes]:
    """Return the episodes and the log of a run in which every cell is filled."""
    folder = tmp_path_factory.mktemp("full")
    export_jsonl(make.run(folder / "run"), folder / "log")
    return episodes(folder / "run"), (folder / "log").read_bytes()


# ---- and back, equal


def test_everything_comes_back_and_the_same_log_is_made_of_it(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path / "run")
    lines = export_jsonl(run, tmp_path / "a.jsonl")
    assert lines == len((tmp_path / "a.jsonl").read_bytes().splitlines())
    assert import_jsonl(tmp_path / "a.jsonl", tmp_path / "back") is None
    assert tips(run) == tips(tmp_path / "back")
    first, second = verify(run).to_dict(), verify(tmp_path / "back").to_dict()
    assert second["ok"]
    assert {**first, "run": ""} == {**second, "run": ""}
    with TraceStore(run, mode="r") as one, TraceStore(tmp_path / "back", mode="r") as other:
        assert one.meta == other.meta
        assert one.tokens() == other.tokens()
        assert other.image(hashlib.sha256(make.image[0]).hexdigest()) == make.image[::-1]
        assert len(one) == len(other)
    there, here = episodes(run), episodes(tmp_path / "back")
    for name, episode in there.items():
        assert episode.head == here[name].head
        assert all(map(make.same_turn, episode.turns, here[name].turns))
    export_jsonl(tmp_path / "back", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@settings(max_examples=300)
@given(patterns=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_log_probabilities_are_short_and_come_back_bit_for_bit(patterns: list[int]) -> None:
    floats = -np.abs(np.array(patterns, np.uint32).view(np.float32))
    logprobs_T = floats[np.isfinite(floats)]
    cells = {"id": 1, "root": 1, "parent": None, "origin": "sampled", "length": len(logprobs_T), "replaced": 0}
    cells |= {"ids": pack_ids(np.ones(len(logprobs_T), np.int32)), "logprobs": pack_logprobs(logprobs_T), "digest": b""}
    written = line(Record("nodes", cells, len(logprobs_T)))
    document = json.loads(written)
    assert np.array(document["logprobs"], np.float64).astype(np.float32).tobytes() == logprobs_T.tobytes()
    back = record_from(document.pop("table"), document)
    assert unpack_logprobs(back.cells["logprobs"], len(logprobs_T)).tobytes() == logprobs_T.tobytes()
    texts = written.decode().partition('"logprobs":[')[2].partition("]")[0].split(",")
    assert all(len(Decimal(text).normalize().as_tuple().digits) <= 9 for text in texts if text)


# ---- for readers without our code


def test_every_line_keeps_the_committed_schema(make: Any, tmp_path: Path) -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json_schema_text()
    schema = json.loads(json_schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    export_jsonl(make.run(tmp_path / "run"), tmp_path / "log")
    documents = [json.loads(text) for text in (tmp_path / "log").read_bytes().splitlines()]
    assert {document["table"] for document in documents} == set(schema["$defs"])
    for document in documents:
        validator.validate(document)
        for name in set(document) - {"table"}:
            assert not validator.is_valid({key: value for key, value in document.items() if key != name})
        assert not validator.is_valid({**document, "more": 1})


HEAD = ["name", "task", "source", "group_id", "replica", "seed", "parent", "parent_turn", "role", "created"]
DIGESTS = {"sent", "evidence", "texts"}


def seal(before: bytes, values: list[Any], size: int = 32) -> bytes:
    out = before
    for value in values:
        match value:
            case None:
                out += b"\0"
            case int():
                out += b"\1" + struct.pack("<q", value)
            case float():
                out += b"\2" + struct.pack("<d", value)
            case _:
                data = value.encode() if isinstance(value, str) else value
                out += (b"\3" if isinstance(value, str) else b"\4") + struct.pack("<Q", len(data)) + data
    return hashlib.blake2b(out, digest_size=size).digest()


def test_contexts_and_hashes_can_be_recomputed_with_nothing_but_json(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path / "run")
    export_jsonl(run, tmp_path / "log")
    tables: dict[str, dict[Any, Any]] = {}
    redacted: set[int] = set()
    chain: dict[int, bytes] = {}
    contexts: dict[str, list[list[int]]] = {}
    for text in (tmp_path / "log").read_bytes().splitlines():
        record = json.loads(text)
        table = record.pop("table")
        key = record.get("id", record.get("turn", record.get("name")))
        before = tables.setdefault(table, {}).get(key)
        tables[table][key] = record
        if table == "redactions" and record["kind"] == "nodes":
            redacted.add(record["record"])
        if table == "nodes" and key not in redacted:
            parent = tables["nodes"][record["parent"]] if record["root"] is None else tables["roots"][record["root"]]
            ids, logprobs = record["ids"], record["logprobs"]
            values = [record["origin"], record["replaced"], struct.pack(f"<{len(ids)}i", *ids)]
            values.append(None if logprobs is None else struct.pack(f"<{len(ids)}f", *logprobs))
            assert seal(bytes.fromhex(parent["digest"]), values, 16).hex() == record["digest"]
        if table == "episodes" and before is None:
            chain[key] = seal(b"", [record[column] for column in HEAD])
            assert chain[key].hex() == record["tip"]
            assert (record["status"], record["turns"]) == ("running", 0)
        elif table == "episodes":
            end = [record["status"], record["success"], record["failure"]]
            tip = chain[key] if record["status"] == "running" else seal(chain[key], end)
            assert tip.hex() == record["tip"]
        if table == "turns":
            context, answer = tables["nodes"][record["context"]], tables["nodes"][record["completion"]]
            columns = list(record)
            sealed = columns[columns.index("turn") : columns.index("texts") + 1]
            values = [record[name] for name in sealed]
            values = [
                bytes.fromhex(value) if name in DIGESTS and value is not None else value
                for name, value in zip(sealed, values, strict=True)
            ]
            spans = [bytes.fromhex(context["digest"]), bytes.fromhex(answer["digest"])]
            settings_body = tables["settings"][record["settings"]]["body"]
            chain[record["episode"]] = seal(chain[record["episode"]], [*spans, settings_body, *values])
            assert chain[record["episode"]].hex() == record["hash"]
            ids = []
            while context is not None:
                ids = context["ids"] + ids
                context = tables["nodes"].get(context["parent"])
            contexts.setdefault(tables["episodes"][record["episode"]]["name"], []).append(ids)
    assert {
        name: [turn.context.ids.tolist() for turn in episode.turns] for name, episode in episodes(run).items()
    } == contexts


# ---- cut and damaged


def part(whole: dict[str, Episode], run: Path, make: Any) -> int:
    """Check that a run is a beginning of another one, turn by turn; return the number of its turns."""
    proof = verify(run)
    assert proof.ok, proof.breaches
    found = episodes(run)
    assert list(found) == list(whole)[: len(found)]
    for place, (name, episode) in enumerate(found.items()):
        assert episode.head == whole[name].head
        last = place == len(found) - 1
        assert last or len(episode.turns) == len(whole[name].turns)
        assert all(map(make.same_turn, episode.turns, whole[name].turns))
        if not last or episode.status != "running":
            assert (episode.status, episode.success) == (whole[name].status, whole[name].success)
            assert episode.failure == whole[name].failure
    return sum(len(episode.turns) for episode in found.values())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("step", [150, pytest.param(1, marks=pytest.mark.deep)])
def test_a_log_reads_back_its_longest_valid_prefix_when_cut_at_any_byte(make: Any, tmp_path: Path, step: int) -> None:
    run, log = small(make, tmp_path / "run"), tmp_path / "log"
    export_jsonl(run, log)
    data, whole = log.read_bytes(), episodes(run)
    lines = data.splitlines(keepends=True)
    tables = [json.loads(text)["table"] for text in lines]
    begins = [sum(map(len, lines[:place])) for place in range(len(lines) + 1)]
    edges = {begin + around for begin in begins for around in (-2, -1, 0, 1)}
    for size in sorted(edges & set(range(len(data))) | set(range(0, len(data), step))):
        log.write_bytes(data[:size])
        kept = data[: size + 1].count(b"\n")  # a record is whole if its newline alone is missing
        out = tmp_path / f"part-{size}"
        if kept == 0:
            with pytest.raises(TraceCorrupt, match="line 1, byte 0"):
                import_jsonl(log, out, partial=True)
            continue
        cut = import_jsonl(log, out, partial=True)
        assert part(whole, out, make) == tables[:kept].count("turns")
        assert (cut is None) == (kept == len(lines))
        if cut is not None:
            assert (cut.line, cut.byte) == (kept + 1, min(size, begins[kept]))
            assert (cut.episodes, cut.turns) == (len(episodes(out)), tables[:kept].count("turns"))


def test_a_cut_log_is_refused_unless_a_part_is_asked_for(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    export_jsonl(make.run(tmp_path / "run"), log)
    log.write_bytes(log.read_bytes()[:-20])
    with pytest.raises(TraceCorrupt, match=r"line 168.*4 episodes with 10 turns stand before it.*--partial"):
        import_jsonl(log, tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"]
    cut = import_jsonl(log, tmp_path / "back", partial=True)
    assert cut is not None
    assert (cut.episodes, cut.turns) == (4, 10)
    assert tips(tmp_path / "back") == tips(tmp_path / "run")


@pytest.mark.usefixtures("quick")
@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_log_is_never_read_as_something_else(
    make: Any, full: tuple[dict[str, Episode], bytes], data: st.DataObject
) -> None:
    whole, good = full[0], bytearray(full[1])

    def place_in(length: int) -> int:  # the length depends on the clock, what is drawn must not
        return data.draw(st.integers(0, 2**32)) % length

    match data.draw(st.sampled_from(["flip", "cut", "drop", "swap", "double"])):
        case "flip":
            good[place_in(len(good))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del good[place_in(len(good)) :]
        case kind:
            lines = bytes(good).splitlines(keepends=True)
            place = place_in(len(lines) - 1)
            if kind == "drop":
                del lines[place]
            elif kind == "double":
                lines.insert(place, lines[place])
            else:
                lines[place : place + 2] = lines[place : place + 2][::-1]
            good = bytearray(b"".join(lines))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "log").write_bytes(good)
        try:
            import_jsonl(folder / "log", folder / "back", partial=True)
        except TraceCorrupt:
            assert not (folder / "back").exists()
        else:
            part(whole, folder / "back", make)


# ---- refusals


def changed(log: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    documents = [json.loads(text) for text in log.read_bytes().splitlines()]
    change(documents)
    log.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")


def no_evidence(turn: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("layers", "chosen", "experts", "counts", "support"))
    return {"table": "evidence", "turn": turn, **nothing}


def begin_of(lines: list[dict[str, Any]], episode: str) -> int:
    return next(place for place, document in enumerate(lines) if document.get("name") == episode)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[-2].update(created=float("nan")), "NaN is no JSON"),
        (lambda lines: lines.append(lines[1]), "a record follows the number of episodes"),
        (lambda lines: lines.pop(0), "the run's document comes first"),
        (lambda lines: lines.insert(2, {"table": "nodes"}), "columns are missing or unknown"),
        (lambda lines: lines.insert(2, {"table": "novel"}), "no table has this name"),
        (lambda lines: lines.insert(2, {"table": []}), "no record"),
        (lambda lines: lines[-2].update(turns=True), "it fits no cell"),
        (lambda lines: lines[-2].update(seed=2**63), "it fits no cell"),
        (lambda lines: lines[-2].update(task="\ud800"), "it fits no cell"),
        (lambda lines: lines[-2].update(created=10**400), "it fits no cell"),
        (lambda lines: lines.insert(-2, lines[1]), "a record stands there twice"),
        (lambda lines: lines[-1].update(body="9"), "another digest"),
        (lambda lines: lines.insert(-4, no_evidence(lines[-3]["id"])), "its evidence is missing, or that of another"),
        (lambda lines: lines.insert(-2, no_evidence(lines[-3]["id"] + 1)), "belong to no record"),
        (lambda lines: [lines[n].update({key: 9}) for n, key in ((-4, "turn"), (-3, "id"))], "counted one by one"),
        (
            lambda lines: lines.__delitem__(slice(begin_of(lines, "ü"), -1)),
            "episodes are missing; .*got: 1; expected: 2",
        ),
        (lambda lines: lines.pop(-2), "episodes are missing; .*without its end"),
        (lambda lines: lines.pop(begin_of(lines, "ü") - 1), "no end of the episode"),
        (lambda lines: lines[-2].update(tip="00" * 32), "no end of the episode"),
        (lambda lines: lines[begin_of(lines, "ü")].update(tip="00" * 32), "no beginning of an episode"),
    ],
)
def test_what_is_no_log_is_refused(
    make: Any, tmp_path: Path, change: Callable[[list[dict[str, Any]]], object], message: str
) -> None:
    log = tmp_path / "log"
    export_jsonl(small(make, tmp_path / "run"), log)
    changed(log, change)
    with pytest.raises(TraceCorrupt, match=message):
        import_jsonl(log, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_what_belongs_to_no_record_ends_the_readable_part(make: Any, tmp_path: Path) -> None:
    run, log = small(make, tmp_path / "run"), tmp_path / "log"
    export_jsonl(run, log)
    changed(log, lambda lines: lines.insert(begin_of(lines, "ü"), no_evidence(3)))
    cut = import_jsonl(log, tmp_path / "back", partial=True)
    assert cut is not None
    assert (cut.episodes, cut.turns) == (1, 2)
    assert part(episodes(run), tmp_path / "back", make) == 2


def test_a_number_that_another_writer_writes_otherwise_is_the_same_number(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    export_jsonl(small(make, tmp_path / "run"), log)
    log.write_bytes(
        log.read_bytes().replace(b'"reward":0.0', b'"reward":-0.0').replace(b'"created":1.0', b'"created":1')
    )
    import_jsonl(log, tmp_path / "back")
    assert tips(tmp_path / "back") == tips(tmp_path / "run")


def test_a_newer_format_is_refused_and_not_read_in_part(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    export_jsonl(small(make, tmp_path / "run"), log)

    def newer(lines: list[dict[str, Any]]) -> None:
        body = lines[0]["body"].replace('"format_version":"1.0"', '"format_version":"1.1"')
        lines[0].update(body=body, digest=seal(b"", ["run", body], 16).hex())

    changed(log, newer)
    with pytest.raises(TraceError, match=r"another format; where: run; got: format 1\.1") as caught:
        import_jsonl(log, tmp_path / "back", partial=True)
    assert not isinstance(caught.value, TraceCorrupt)


def test_nothing_is_written_over_and_nothing_is_left_behind(make: Any, tmp_path: Path) -> None:
    run = small(make, tmp_path / "run")
    export_jsonl(run, tmp_path / "log")
    for use in (lambda: export_jsonl(run, tmp_path / "log"), lambda: import_jsonl(tmp_path / "log", run)):
        with pytest.raises(TraceError, match="something stands there already"):
            use()
    with pytest.raises(TraceError, match="the log cannot be read"):
        import_jsonl(tmp_path / "no log", tmp_path / "back")
    with pytest.raises(TraceError, match="there is no trace"):
        export_jsonl(tmp_path / "no run", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"]


def test_a_span_that_is_no_span_is_refused(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    export_jsonl(small(make, tmp_path / "run"), log)
    place = next(n for n, text in enumerate(log.read_bytes().splitlines()) if b'"table":"nodes"' in text)
    for change in ({"ids": [-1]}, {"ids": [0.5]}, {"logprobs": [0.5]}, {"logprobs": ["x"]}, {"length": 5}):
        export_jsonl(tmp_path / "run", tmp_path / "log2")
        changed(tmp_path / "log2", lambda lines, change=change: lines[place].update(change))
        with pytest.raises(TraceCorrupt, match=f"line {place + 1}"):
            import_jsonl(tmp_path / "log2", tmp_path / "back")
        (tmp_path / "log2").unlink()
