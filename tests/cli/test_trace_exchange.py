"""`trace export`, `import`, `merge` and `prune`: what they write, what they say, and how they fail."""

import json
from pathlib import Path

import pytest

from agentgym_tok.cli.main import main
from agentgym_tok.trace import TraceStore

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Play three episodes."""
    folder = tmp_path_factory.mktemp("eval") / "run"
    assert main(["eval", "alfworld", "--policy", "expert", "--episodes", "3", "--out", str(folder)]) == 0
    return str(folder)


def trace(*words: object) -> int:
    return main(["trace", *map(str, words)])


def replayed(run: Path, capture: Capture) -> str:
    capture.readouterr()
    assert trace("verify", run) == 0
    out = capture.readouterr().out
    assert "verified: every law holds" in out
    return next(line for line in out.splitlines() if "made again from their messages" in line)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "atif"])
def test_a_run_goes_out_and_comes_back(run: str, tmp_path: Path, capsys: Capture, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra parquet")
    assert trace("export", run, "--format", form, "--out", tmp_path / "out") == 0
    assert {"jsonl": "records", "parquet": "records", "atif": "3 rollouts"}[form] in capsys.readouterr().out
    assert trace("import", tmp_path / "out", "--out", tmp_path / "back") == 0
    assert "3 episodes" in capsys.readouterr().out
    assert replayed(tmp_path / "back", capsys) == replayed(Path(run), capsys)


def test_atif_files_of_other_tools_need_a_chat_format(tmp_path: Path, capsys: Capture) -> None:
    metrics = {"prompt_token_ids": [1, 2], "completion_token_ids": [3]}
    step = {"step_id": 1, "source": "agent", "message": "Hello.", "metrics": metrics}
    agent = {"name": "stub", "version": "1"}
    document = {"schema_version": "ATIF-v1.4", "session_id": "s1", "agent": agent, "steps": [step]}
    (tmp_path / "one.json").write_text(json.dumps(document))
    assert trace("import", tmp_path / "one.json", "--out", tmp_path / "back") == 1
    assert "tokenizer" in capsys.readouterr().err
    assert trace("import", tmp_path / "one.json", "--chat", "builtin", "--out", tmp_path / "back") == 0
    with TraceStore(tmp_path / "back", mode="r") as store:
        assert store.episode("s1").turns[0].completion.ids_T.tolist() == [3]


def test_rows_are_written_under_the_options_of_rows(run: str, tmp_path: Path, capsys: Capture) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    options = ["--format", "rows", "--objective", "sft", "--weighting", "row"]
    assert trace("export", run, *options, "--out", tmp_path / "one.parquet") == 0
    assert trace("export", run, *options, "--merge", "turn", "--out", tmp_path / "each.parquet") == 0
    counts = [pq.read_metadata(tmp_path / f"{name}.parquet").num_rows for name in ("one", "each")]
    assert 3 <= counts[0] < counts[1]
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()] == [f"{n} rows" for n in counts]


def test_a_cut_log_fails_unless_a_part_is_asked_for(run: str, tmp_path: Path, capsys: Capture) -> None:
    assert trace("export", run, "--out", tmp_path / "log") == 0
    data = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(data[: len(data) * 3 // 4])
    assert trace("import", tmp_path / "log", "--out", tmp_path / "back") == 1
    assert "--partial" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
    assert trace("import", tmp_path / "log", "--partial", "--out", tmp_path / "back") == 0
    said = capsys.readouterr()
    assert "warning: the log is not whole" in said.err
    assert ", byte " in said.err
    replayed(tmp_path / "back", capsys)
    assert trace("import", tmp_path, "--partial", "--out", tmp_path / "no") == 2


def test_runs_are_merged_and_pruned(run: str, tmp_path: Path, capsys: Capture) -> None:
    with TraceStore(run, mode="r") as store:
        names = [episode.id for episode in store.episodes()]
    assert trace("prune", run, "--episode", names[0], "--out", tmp_path / "one") == 0
    assert trace("prune", run, "--episode", names[1], "--episode", names[2], "--out", tmp_path / "two") == 0
    assert trace("merge", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "new") == 0
    assert "3 episodes" in capsys.readouterr().out
    assert replayed(tmp_path / "new", capsys).replace("1 shards", "") == replayed(Path(run), capsys).replace(
        "1 shards", ""
    )
    assert trace("show", tmp_path / "new") == 0
    out = capsys.readouterr().out
    assert out.count("pruned: ") == 2
    assert f'kept was {{"episode": ["{names[0]}"]}}' in out
    assert trace("verify", tmp_path / "new", "--output", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["pruned"]) == 2
    assert trace("prune", run, "--status", "failed", "--out", tmp_path / "none") == 1
    assert trace("prune", run, "--status", "lost", "--out", tmp_path / "none") == 2
    assert trace("merge", "--out", tmp_path / "none") == 2
    assert not (tmp_path / "none").exists()
