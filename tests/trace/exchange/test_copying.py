"""Copies hold the records themselves: random runs through every format, and runs put together."""

import contextlib
import hashlib
import re
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import FingerprintMismatch, TraceCorrupt, TraceError
from agentgym_tok.trace import Episode, Failure, RunMeta, TraceStore, verify
from agentgym_tok.trace.exchange.cells import Record
from agentgym_tok.trace.exchange.copying import new_run
from agentgym_tok.trace.exchange.jsonl import export_jsonl, import_jsonl
from agentgym_tok.trace.exchange.merge import merge
from agentgym_tok.trace.exchange.parquet import export_parquet, import_parquet
from agentgym_tok.trace.exchange.rollouts import opened
from agentgym_tok.trace.exchange.stream import stream
from agentgym_tok.trace.redact import redact
from agentgym_tok.types import Message


def query(run: Path, statement: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for path in sorted((run / "shards").glob("*.sqlite")):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found += connection.execute(statement).fetchall()
            connection.commit()
    return found


def tips(run: Path) -> list[tuple[Any, ...]]:
    return sorted(query(run, "SELECT name, status, success, failure, turns, tip FROM episodes"))


def episodes(run: Path) -> dict[str, Episode]:
    with TraceStore(run, mode="r") as store:
        return {head.id: store.episode(head.id) for head, _ in store.heads()}


def write(make: Any, folder: Path, *names: str, **options: Any) -> Path:
    """Write one episode of three turns for each name, that of the first one with a subagent."""
    with TraceStore(folder, meta=options.pop("meta", make.meta)) as store:
        store.add_image(*make.image)
        for name in names:
            store.begin(make.head(name, **options))
            for turn in make.rich_turns(name):
                store.append(turn)
            store.finish(name, success=True)
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the waiting for the disk."""
    monkeypatch.setattr("agentgym_tok.trace.drafts._sync", lambda _path: None)


# ---- all formats


@pytest.mark.usefixtures("quick")
@settings(max_examples=12)
@given(data=st.data())
def test_random_runs_come_back_from_every_format(make: Any, data: st.DataObject) -> None:
    tree = make.tree(data)
    forest = tree.forest()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = folder / "run"
        with TraceStore(run, meta=make.meta) as main, TraceStore(run, shard="a", meta=make.meta) as other:
            for head, turns in forest:
                store = tree.pick(main, other)
                store.begin(head)
                for turn in turns:
                    store.append(turn)
                match tree.pick("running", "done", "failed"):
                    case "done":
                        store.finish(head.id, "done", success=tree.pick(True, False, None))
                    case "failed":
                        store.finish(head.id, "failed", failure=Failure("world", "Down"))
        export_jsonl(run, folder / "log")
        import_jsonl(folder / "log", folder / "jsonl")
        export_parquet(folder / "jsonl", folder / "tables")
        import_parquet(folder / "tables", folder / "parquet")
        merge([run], folder / "merged")
        found = verify(run).to_dict()
        assert found["ok"], found
        for copy in (folder / "jsonl", folder / "parquet", folder / "merged"):
            assert tips(copy) == tips(run)
            assert {**verify(copy).to_dict(), "run": "", "shards": 2, "ids": 0} == {**found, "run": "", "ids": 0}
            back = episodes(copy)
            for head, turns in forest:
                assert back[head.id].head == head
                assert all(map(make.same_turn, back[head.id].turns, turns))
                assert len(back[head.id].turns) == len(turns)
            export_jsonl(copy, copy / "log")
            assert (copy / "log").read_bytes() == (folder / "log").read_bytes()


def test_a_log_has_every_parent_before_its_subagents_also_across_shards(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as main, TraceStore(tmp_path, shard="a") as other:
        family = (("r", None, main), ("c", "r", other), ("s", None, other), ("g", "c", main), ("d", "r", other))
        for name, parent, store in family:
            store.begin(make.head(name, parent=parent))
    with opened([tmp_path]) as readers:
        records = [record for record in stream(readers) if record.table == "episodes"]
    assert [record.cells["name"] for record in records] == [*"ssrrccggdd"]


# ---- merging


def test_merged_runs_share_what_they_have_in_common(make: Any, tmp_path: Path) -> None:
    one = write(make, tmp_path / "one", "a", "b", source="first")
    two = write(make, tmp_path / "two", "c", "b", source="first")
    counts = merge([one, two, one], tmp_path / "new")
    assert [episode for episode, *_ in tips(tmp_path / "new")] == ["a", "b", "c"]
    assert tips(tmp_path / "new") == sorted({*tips(one), *tips(two)})
    assert (counts["episodes"], counts["turns"], counts["images"], counts["roots"]) == (3, 9, 1, 1)
    assert query(tmp_path / "new", "SELECT count(*) FROM nodes") == query(one, "SELECT count(*) FROM nodes")
    proof = verify(tmp_path / "new")
    assert proof.ok, proof.breaches
    with TraceStore(tmp_path / "new", mode="r") as store:
        assert store.image(hashlib.sha256(make.image[0]).hexdigest()) == make.image[::-1]


def test_what_each_run_was_made_with_stays(make: Any, tmp_path: Path) -> None:
    metas = [make.meta.model_copy(update={"created": created, "config": {"k": created}}) for created in (1.0, 2.0, 3.0)]
    runs = [write(make, tmp_path / f"{place}", f"e{place}", meta=meta) for place, meta in enumerate(metas)]
    merge(runs[:2], tmp_path / "new")
    merge([tmp_path / "new", runs[2], runs[1]], tmp_path / "newer")
    bodies = dict(query(tmp_path / "newer", "SELECT name, body FROM meta"))
    assert {name: RunMeta.model_validate_json(bodies[name]) for name in ("run", "run:2", "run:3")} == dict(
        zip(("run", "run:2", "run:3"), metas, strict=True)
    )
    assert set(bodies) == {"run", "run:2", "run:3", "episodes"}
    assert verify(tmp_path / "newer").ok


def test_different_episodes_of_one_id_are_refused_by_name(make: Any, tmp_path: Path) -> None:
    one, two = write(make, tmp_path / "one", "a", "twin"), write(make, tmp_path / "two", "twin", seed=1)
    with pytest.raises(TraceCorrupt, match=r"two episodes have one id.*got: twin"):
        merge([one, two], tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_different_chat_formats_are_refused(make: Any, tmp_path: Path) -> None:
    runs = [write(make, tmp_path / "one", "a")]
    with TraceStore(tmp_path / "two", meta=RunMeta(fingerprint="0" * 64, vocab_size=5000)):
        pass
    with pytest.raises(FingerprintMismatch, match="another chat format"):
        merge([*runs, tmp_path / "two"], tmp_path / "new")


def test_what_was_taken_out_of_one_run_does_not_come_back_from_another(make: Any, tmp_path: Path) -> None:
    whole, blank = tmp_path / "whole", tmp_path / "blank"
    make.run(blank)
    with TraceStore(whole, meta=make.meta) as store:
        store.begin(make.head("five"))
        store.append(make.turn("five", 0, make.prompt(50, 51), [7, 8]))
    for runs in ([whole, blank], [blank, whole]):
        with pytest.raises(TraceCorrupt, match="a span was taken out of one and not of the other"):
            merge(runs, tmp_path / "new")
    merge([blank, blank], tmp_path / "new")
    assert verify(tmp_path / "new").redacted == verify(blank).redacted == 1


def test_an_episode_without_a_text_that_was_taken_out_is_another_one(
    make: Any, builtin: ChatFormat, tmp_path: Path
) -> None:
    whole, blank = tmp_path / "whole", tmp_path / "blank"
    context = builtin.open([Message("user", "Hello.")])
    with TraceStore(whole, meta=RunMeta(fingerprint=builtin.fingerprint, vocab_size=builtin.vocab_size)) as store:
        store.begin(make.head("e"))
        store.append(make.turn("e", 0, context, [2], text="the word"))
    redact(whole, blank, [re.compile("the word")], chat=builtin, rule="a word")
    with pytest.raises(TraceCorrupt, match="two episodes have one id"):
        merge([whole, blank], tmp_path / "new")
    export_jsonl(blank, tmp_path / "log")
    import_jsonl(tmp_path / "log", tmp_path / "back")
    merge([tmp_path / "back", blank], tmp_path / "new")
    assert verify(tmp_path / "new", builtin).redacted == 1


def test_a_run_that_is_being_written_can_be_copied(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", meta=make.meta) as store:
        store.begin(make.head("e"))
        store.append(make.turn("e", 0, make.prompt(1), [2]))
        merge([tmp_path / "run"], tmp_path / "new")
        store.append(make.turn("e", 1, make.prompt(1), [2], edge=None))
    assert [len(episode.turns) for episode in episodes(tmp_path / "new").values()] == [1]
    with TraceStore(tmp_path / "new") as store:  # and the copy can be gone on with
        store.append(make.turn("e", 1, make.after(episodes(tmp_path / "run")["e"].turns[0]), [2]))
    assert verify(tmp_path / "new").ok


# ---- damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE nodes SET replaced = 7 WHERE id = 1", "nodes|another digest"),
        ("UPDATE turns SET reward = 7 WHERE id = 2", "hash chain breaks"),
        ("UPDATE texts SET body = replace(body, 'go', 'no') WHERE turn = 1", "texts are not those"),
        ("UPDATE episodes SET success = 0 WHERE id = 1", "no end of the episode"),
        ("UPDATE episodes SET task = 'other' WHERE id = 1", "no end of the episode|hash chain breaks"),
        ("UPDATE images SET body = x'00'", "another one"),
        ("UPDATE tokens SET text = 'x'", "another digest"),
        ("INSERT INTO meta VALUES ('more', '1', x'00')", "a document is damaged"),
        ("DELETE FROM texts WHERE turn = 2", "a record is missing"),
        ("DELETE FROM evidence WHERE turn = 1", "evidence is not what was written"),
        ("DELETE FROM images", "an image that it shows is not there"),
        ("DELETE FROM roots", "a root is missing"),
        ("DELETE FROM turns WHERE id = 3", "no end of the episode"),
        ("UPDATE episodes SET parent = 'one' WHERE id = 1", "its own subagent"),
    ],
)
def test_a_damaged_run_is_not_copied(make: Any, tmp_path: Path, damage: str, message: str) -> None:
    run = make.run(tmp_path / "run")
    query(run, damage)
    with pytest.raises(TraceCorrupt, match=message):
        merge([run], tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_new_run_appears_whole_or_not_at_all(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write(make, tmp_path / "run", "a")
    with pytest.raises(TraceError, match="something stands there already"):
        merge([run], run)
    with pytest.raises(KeyboardInterrupt):
        _copied_and_stopped(run, tmp_path / "new")
    with pytest.raises(TraceCorrupt, match="nothing was put in"), new_run(tmp_path / "new"):
        pass
    with pytest.raises(TraceCorrupt, match="the run's document comes first"), new_run(tmp_path / "new") as copy:
        copy.put(Record("settings", {"id": 1, "body": "{}"}))
    monkeypatch.setattr("agentgym_tok.trace.drafts._sync", _full)
    with pytest.raises(TraceError, match=r"it cannot be written.*No space left"):
        merge([run], tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _copied_and_stopped(run: Path, out: Path) -> None:
    with opened([run]) as readers, new_run(out) as copy:
        for record in stream(readers):
            assert not out.exists()
            copy.put(record)
        raise KeyboardInterrupt


def _full(path: Path) -> None:
    raise OSError(28, "No space left on device", str(path))


def test_a_newer_format_is_read_and_not_copied(make: Any, tmp_path: Path) -> None:
    run = write(make, tmp_path / "run", "a")
    query(run, "PRAGMA user_version = 101")
    with pytest.raises(TraceError, match=r"a newer format can be read, not copied.*format 1\.1"):
        merge([run], tmp_path / "new")
