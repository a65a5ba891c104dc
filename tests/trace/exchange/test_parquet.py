"""Parquet holds a run's tables to bring back, and rows that others train on."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_tok.errors import MissingExtra, TraceCorrupt, TraceError
from agentgym_tok.trace import Row, TraceStore, rows, verify
from agentgym_tok.trace.exchange.arrow_schema import arrow_schema
from agentgym_tok.trace.exchange.jsonl import export_jsonl
from agentgym_tok.trace.exchange.parquet import export_parquet, import_parquet
from agentgym_tok.trace.exchange.parquet_file import ParquetFile
from agentgym_tok.trace.exchange.rows_parquet import export_rows
from agentgym_tok.trace.schema import TABLES
from agentgym_tok.types import Completion

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")


# ---- tables


def test_tables_come_back_and_the_same_log_is_made_of_them(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path / "run")
    counts = export_parquet(run, tmp_path / "tables")
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted(f"{name}.parquet" for name in counts)
    assert set(counts) == {table.name for table in TABLES}
    assert all(counts.values())
    import_parquet(tmp_path / "tables", tmp_path / "back")
    first, second = verify(run).to_dict(), verify(tmp_path / "back").to_dict()
    assert second["ok"]
    assert {**first, "run": ""} == {**second, "run": ""}
    for place in ("run", "back"):
        export_jsonl(tmp_path / place, tmp_path / f"{place}.jsonl")
    assert (tmp_path / "run.jsonl").read_bytes() == (tmp_path / "back.jsonl").read_bytes()


def test_files_have_the_generated_schema_and_values_that_need_no_unpacking(make: Any, tmp_path: Path) -> None:
    export_parquet(make.run(tmp_path / "run"), tmp_path / "tables")
    for table in TABLES:
        file = pq.ParquetFile(tmp_path / "tables" / f"{table.name}.parquet")
        assert file.schema_arrow.equals(arrow_schema(table))
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    nodes = pq.read_table(tmp_path / "tables" / "nodes.parquet").to_pylist()
    assert nodes[1]["ids"] == [7, 8, 4999]
    assert nodes[1]["logprobs"] == [-0.5, -0.75, -1.0]
    (image,) = pq.read_table(tmp_path / "tables" / "images.parquet").to_pylist()
    assert image["body"] == make.image[0]
    episodes = pq.read_table(tmp_path / "tables" / "episodes.parquet").to_pylist()
    assert [(episode["name"], episode["status"], episode["turns"]) for episode in episodes] == [
        ("one", "done", 3),
        ("two", "failed", 3),
        ("three", "running", 3),
        ("four", "running", 1),
    ]


def test_row_groups_are_bounded(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_tok.trace.exchange.parquet_file._GROUP", 2000)
    run = make.run(tmp_path / "run")
    export_parquet(run, tmp_path / "tables")
    metadata = pq.ParquetFile(tmp_path / "tables" / "texts.parquet").metadata
    assert metadata.num_row_groups > 2
    import_parquet(tmp_path / "tables", tmp_path / "back")
    assert verify(tmp_path / "back").ok


def test_the_order_of_records_does_not_matter(make: Any, tmp_path: Path) -> None:
    export_parquet(make.run(tmp_path / "run"), tmp_path / "tables")
    for path in (tmp_path / "tables").iterdir():
        table = pq.read_table(path)
        pq.write_table(table.take(list(range(len(table)))[::-1]), path)
    import_parquet(tmp_path / "tables", tmp_path / "back")
    assert {**verify(tmp_path / "run").to_dict(), "run": ""} == {**verify(tmp_path / "back").to_dict(), "run": ""}


def changed(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    path = folder / f"{table}.parquet"
    schema, records = pq.read_schema(path), pq.read_table(path).to_pylist()
    change(records)
    pq.write_table(pa.Table.from_pylist(records, schema), path)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("turns", lambda records: records[3].update(reward=7.0), "hash chain breaks"),
        ("turns", lambda records: records.pop(), "attempts are there"),
        ("nodes", lambda records: records[1]["ids"].reverse(), "has another digest"),
        ("nodes", lambda records: records[1]["logprobs"].reverse(), "has another digest"),
        ("nodes", lambda records: records.append(records[0]), "a record stands there twice"),
        ("nodes", lambda records: records[0].update(digest="x"), "it fits no cell"),
        ("episodes", lambda records: records.pop(), "were begun"),
        ("meta", lambda records: records.pop(0), "the run's document is missing"),
        ("images", lambda records: records[0].update(body=b"x"), "another one"),
    ],
)
def test_what_is_not_what_was_exported_is_refused(
    make: Any, tmp_path: Path, table: str, change: Callable[[list[dict[str, Any]]], object], message: str
) -> None:
    export_parquet(make.run(tmp_path / "run"), tmp_path / "tables")
    changed(tmp_path / "tables", table, change)
    with pytest.raises(TraceCorrupt, match=message):
        import_parquet(tmp_path / "tables", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_files_that_are_damaged_or_missing_are_named(make: Any, tmp_path: Path) -> None:
    export_parquet(make.run(tmp_path / "run"), tmp_path / "tables")
    file = tmp_path / "tables" / "turns.parquet"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceCorrupt, match=r"the file cannot be read; where: .*turns\.parquet"):
        import_parquet(tmp_path / "tables", tmp_path / "back")
    file.unlink()
    with pytest.raises(TraceCorrupt, match=r"the file cannot be read; where: .*turns\.parquet"):
        import_parquet(tmp_path / "tables", tmp_path / "back")
    with pytest.raises(TraceError, match="something stands there already"):
        export_parquet(tmp_path / "run", tmp_path / "tables")


def test_without_pyarrow_the_command_is_said(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make.run(tmp_path / "run")
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for use in (lambda: export_parquet(run, tmp_path / "tables"), lambda: export_rows(run, tmp_path / "rows")):
        with pytest.raises(MissingExtra, match=r"pip install \"agentgym-tok\[parquet\]\""):
            use()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# ---- rows


def rows_of(run: Path, **options: Any) -> list[Row]:
    with TraceStore(run, mode="r") as store:
        return [row for episode in store.episodes() for row in rows(episode, **options)]


def mixture(make: Any, folder: Path) -> Path:
    """Write a run whose turns all say their experts and support, and one whose world wrote a lone surrogate."""
    run = make.run(folder)
    with TraceStore(run, mode="r") as store:
        (turn,) = (turn for turn in store.episode("three").turns if turn.used and turn.index == 0)
    parts = {name: getattr(turn.completion, name) for name in Completion.__dataclass_fields__}
    with TraceStore(run, shard="more") as store:
        store.begin(make.head("five"))
        fields = {"completion": {**parts, "weight_versions": (("v1", 0, 3),)}, "messages": turn.messages}
        del fields["completion"]["ids_T"]
        logprobs = fields["completion"].pop("logprobs_T").tolist()
        fields["facts"] = {"anchor": "a \ud800 world"}
        fields["messages"] = ()
        store.append(make.turn("five", 0, turn.context, [7, 8, 4999], logprobs=logprobs, **fields))
    return run


@pytest.mark.parametrize(
    "options", [{}, {"merge": "turn", "weighting": "token"}, {"objective": "sft", "weighting": "row"}]
)
def test_rows_hold_every_field_of_the_rows(make: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    run = mixture(make, tmp_path / "run")
    expected = rows_of(run, **options)
    assert export_rows(run, tmp_path / "rows.parquet", **options) == len(expected)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert json.loads(table.schema.metadata[b"run"])["fingerprint"] == make.meta.fingerprint
    asked = {"objective": "rl", "merge": "prefix", "weighting": "rollout", **options}
    assert json.loads(table.schema.metadata[b"rows"]) == asked
    for row, written in zip(expected, table.to_pylist(), strict=True):
        for name in (
            "ids_T",
            "mask_T",
            "logprobs_T",
            "version_T",
            "turn_T",
            "temperature_T",
            "turn_rewards_N",
            "valid_N",
        ):
            array = getattr(row, name)
            assert np.array(written.pop(name[:-2]), array.dtype).tobytes() == array.tobytes()
        experts, support = written.pop("experts"), written.pop("support")
        assert (experts is None) == (row.experts_T_L_K is None)
        assert experts is None or np.array_equal(np.array(experts), row.experts_T_L_K)
        assert (support is None) == (row.support is None)
        assert support is None or [len(ids) for ids in support] == row.support.counts_T.tolist()
        assert support is None or [index for ids in support for index in ids] == row.support.ids_S.tolist()
        assert tuple(written.pop("anchor")) == tuple(text.replace("\ud800", "\ufffd") for text in row.anchor_N)
        assert tuple(written.pop("versions")) == row.versions
        assert written == {name: getattr(row, name) for name in written}
        assert len(written) == 7
    assert any(row.experts_T_L_K is not None for row in expected)
    assert any("\ud800" in text for row in expected for text in row.anchor_N)


def test_rows_open_with_datasets(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    run = mixture(make, tmp_path / "run")
    export_rows(run, tmp_path / "rows.parquet")
    found = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "rows.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    expected = rows_of(run)
    assert found["ids"][:] == [row.ids_T.tolist() for row in expected]
    assert found["mask"][:] == [row.mask_T.tolist() for row in expected]
    assert found["rollout_id"][:] == [row.rollout_id for row in expected]
    assert found[0]["weight"] == expected[0].weight


def test_a_record_that_fits_no_column_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32())])
    with pytest.raises(TraceError, match="Parquet refuses a record"), ParquetFile(tmp_path / "x", schema) as file:
        file.add({"id": 2**40})
