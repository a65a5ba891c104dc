"""Search-QA from the command line: scores by dataset, and retrievers measured."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.cli.main import main

Capture = pytest.CaptureFixture[str]


def evaluate(folder: Path, *options: str) -> dict[str, Any]:
    assert main(["eval", "searchqa", "--out", str(folder / "run"), *options]) == 0
    written: dict[str, Any] = json.loads((folder / "run" / "results.json").read_text())
    return written


@pytest.mark.parametrize(("prompting", "steps"), [("transcript", 10), ("search_r1", 5), ("step", 6), ("react", 5)])
def test_eval_scores_each_kind_by_exact_match_and_f1(
    prompting: str, steps: int, tmp_path: Path, capsys: Capture
) -> None:
    played = ["--policy", "expert", "--episodes", "20", "--max-steps", str(steps)]
    written = evaluate(tmp_path, "--prompting", prompting, *played)
    scores = {score["label"]: score for score in written["scores"]}
    assert set(scores) == {"1hop", "2hop", "3hop", "4hop", "compare", "All"}
    assert written["config"]["split"] == "test"
    for score in scores.values():
        assert (score["success"], score["metrics"]["em"]["mean"], score["metrics"]["f1"]["mean"]) == (1.0, 1.0, 1.0)
        assert score["metrics"]["f1"]["low"] < 1.0
    out = capsys.readouterr().out
    assert f"expert on SearchQA-synth test, {prompting}" in out
    assert all(heading in out for heading in (" EM ", " F1 ", "95 % interval"))
    assert main(["trace", "verify", str(tmp_path / "run")]) == 0
    assert "every law holds" in capsys.readouterr().out


def test_eval_scores_each_dataset(tmp_path: Path, capsys: Capture) -> None:
    asked = [("nq", "who a"), ("nq", "who b"), ("popqa", "who c")]
    rows = [
        {"id": str(n), "question": text, "golden_answers": ["Ann Lee"], "data_source": name}
        for n, (name, text) in enumerate(asked)
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "0", "contents": "Ann Lee did it."}), encoding="utf-8")
    (tmp_path / "guesser.py").write_text(
        "from agentgym_tok import ChatFormat\n"
        "CHAT = ChatFormat.builtin()\n"
        "def says(ids_T):\n"
        "    right = 'who a' in CHAT.decode(ids_T)\n"
        "    return CHAT.encode_turn('<answer>' + ('Ann Lee' if right else 'Ann') + '</answer>')\n"
    )
    options = {"corpus": str(tmp_path / "corpus.jsonl")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(tmp_path)])
        arguments = ["--source", "official", "--data", str(tmp_path), "--prompting", "search_r1"]
        written = evaluate(
            tmp_path, *arguments, "--policy", "python:guesser:says", "--env", json.dumps(options), "--seed", "1"
        )
    scores = {score["label"]: score for score in written["scores"]}
    assert list(scores) == ["nq", "popqa", "All"]
    assert [scores[name]["metrics"]["em"]["mean"] for name in scores] == pytest.approx([1 / 2, 0, 1 / 3])
    assert [scores[name]["metrics"]["f1"]["mean"] for name in scores] == pytest.approx([5 / 6, 2 / 3, 7 / 9])
    assert written["source"] == "SearchQA"


def test_bench_measures_retrievers_and_recall(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "bench.json"
    options = ["--retriever", "bm25", "--retriever", "sqlite", "--seconds", "0.01", "--batch", "8", "--out", str(file)]
    assert main(["bench", "searchqa", *options]) == 0
    figures = json.loads(file.read_text())["figures"]
    for name in ("bm25", "sqlite"):
        assert figures[name]["queries/s"] > 0
        assert figures[name]["batched queries/s"] > 0
        assert 0.3 < figures[name]["recall@5 SearchQA-synth"] < 1
    assert "recall@5" in capsys.readouterr().out
    assert main(["bench", "searchqa", "--questions", "x.jsonl"]) == 2
    assert "belong together" in capsys.readouterr().err


@pytest.mark.parametrize(("dataset", "bar"), [("musique", 0.45), ("hotpotqa", 0.70)])
def test_the_default_retriever_finds_the_gold_passages_of_real_questions(
    dataset: str, bar: float, shared: Path, tmp_path: Path
) -> None:
    folder, file = shared / "searchqa", tmp_path / "bench.json"
    options = ["--seconds", "0.01", "--out", str(file), "--questions", str(folder / f"{dataset}_train.json")]
    # Both corpora together, so that each is a distractor of the other.
    for corpus in ("musique", "hotpotqa"):
        options += ["--corpus", str(folder / f"{corpus}_train_corpus.json")]
    assert main(["bench", "searchqa", *options]) == 0
    assert json.loads(file.read_text())["figures"]["bm25"][f"recall@5 {dataset}"] >= bar


def test_prepared_data_is_counted_and_opened_by_its_folder(tmp_path: Path, capsys: Capture) -> None:
    names = ["popqa", "nq", "own", "nq"]
    rows = [
        {"id": str(n), "question": "who", "golden_answers": ["a"], "data_source": name} for n, name in enumerate(names)
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "wiki.jsonl").write_text(json.dumps({"id": "7", "contents": '"Ann"\nAnn did.'}), encoding="utf-8")
    arguments = ["--questions", str(tmp_path / "test.jsonl"), "--corpus", str(tmp_path / "wiki.jsonl")]
    assert main(["data", "prepare", "searchqa", *arguments]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if " 0 " in line] == ["nq", "popqa", "own"]
    assert "1 passages, indexed by bm25" in out
    folder = Path(out.splitlines()[-1].removeprefix("corpus="))
    assert folder.is_dir()
    (tmp_path / "wiki.jsonl").unlink()
    options = json.dumps({"corpus": str(folder), "dataset": "nq"})
    data = ["--source", "official", "--data", str(tmp_path / "test.jsonl"), "--env", options]
    assert main(["eval", "searchqa", "--dry-run", *data]) == 0
    assert "2 tasks of SearchQA, the first: nq/1" in capsys.readouterr().out
    assert main(["data", "prepare", "searchqa"]) == 2
    assert "nothing to prepare" in capsys.readouterr().err


def test_mistakes_are_named(capsys: Capture) -> None:
    for arguments, words in (
        (["eval", "searchqa", "--split", "tst"], "did you mean test"),
        (["eval", "searchqa", "--prompting", "search_r2"], "did you mean search_r1"),
        (["eval", "searchqa", "--env", '{"topk": 0}'], "topk=0"),
        (["eval", "searchqa", "--env", '{"colour": 1}'], "does not know an option"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


def test_play_takes_the_two_commands(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("search[lake]\nanswer[x]\n"))
    assert main(["play", "searchqa", "--task", "1", "--split", "test", "--no-ids"]) == 0
    out = capsys.readouterr().out
    assert "Title" in out
    assert "over (by the world)" in out
