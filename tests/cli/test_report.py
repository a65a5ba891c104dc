"""`agentgym-tok report`: says where the page is, and with which status it ends."""

from pathlib import Path

import pytest

from agentgym_tok.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "random"
    options = ["--policy", "random", "--episodes", "3", "--max-steps", "4", "--out", str(folder)]
    assert main(["eval", "alfworld", *options]) == 0
    return folder


def test_a_report_is_written_where_it_says(run: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    out = tmp_path / "out"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out / 'report.html'} (")
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "tables", "figures", "traces"}
    assert (out / "traces" / "random.html").is_file()
    assert list((out / "figures").glob("*.png"))


def test_traces_and_pictures_can_be_left_out(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run / "results.json"), "--no-traces", "--no-pictures"]) == 0
    assert not (tmp_path / "report" / "traces").exists()
    assert not list((tmp_path / "report" / "figures").glob("*.png"))


def test_what_cannot_be_reported_says_why(run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = ["--out", str(tmp_path / "out"), "--no-pictures"]
    assert main(["report", str(tmp_path / "nothing"), *out]) == 1
    assert "there is nothing to report" in capsys.readouterr().err
    assert main(["report", str(run), str(run), *out]) == 2
    assert "different runs" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(run), "--no-pictures"]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert (run / "results.json").is_file()
    assert main(["report"]) == 2
