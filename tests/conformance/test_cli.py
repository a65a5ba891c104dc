"""The command line plays against any gateway and says what it found, for people and for programs."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tito_conformance import cli
from tito_conformance.cases import CASES
from tito_conformance.gateways.exact import ExactGateway
from tito_conformance.models import BUILT, Model

RUN = Path(__file__).with_name("run.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_failed_case_is_status_1_and_stands_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--gateway", "naive", "--case", "1", "--case", "11"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "naive"
    assert lines[2].startswith(
        "   1  failed          HAVING sampled as H and AVING [tiny-chatml]  step 2: the past changed"
    )
    assert lines[3].startswith("  11  prevented ")
    assert lines[-1] == "2 cases: 1 prevented, 0 reported, 1 failed, 0 not applicable"


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--gateway", "exact", "--case", "33", "--output", "json"]) == 0
    board = json.loads(capsys.readouterr().out)
    assert board["totals"] == {"prevented": 0, "reported": 1, "failed": 0, "not applicable": 0}
    assert board["cases"] == [
        {
            "number": "33",
            "title": "the client renders its system prompt anew",
            "source": "openenv export.py; claude-code",
            "model": "tiny-chatml",
            "classes": ["system_swap"],
            "best": "reported",
            "verdict": "reported",
            "detail": "step 2: system_swap",
        }
    ]


def test_a_foreign_gateway_is_played_by_its_url(models: dict[str, Model], capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with ExactGateway(f"http://127.0.0.1:{port}", list(models.values())) as gateway:
        asked = ["--gateway", gateway.url, "--engine-port", str(port), "--model", "tiny-chatml", "--model", "tiny-phi3"]
        assert cli.main(asked) == 0
    played = sum(case.model in ("tiny-chatml", "tiny-phi3") for case in CASES)
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{played} cases: ")


def test_the_proxy_is_played_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--gateway", "proxy", "--model", "tiny-chatml", "--model", "tiny-phi3", "--case", "1", "--case", "17"]
    assert cli.main(asked) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 cases: 2 prevented")


def test_a_gateway_that_is_not_there_is_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_WAIT", 0.0)
    assert cli.main(["--gateway", f"http://127.0.0.1:{free_port()}/v1"]) == 1
    assert "nothing listens at" in capsys.readouterr().err


def test_real_tokenizers_are_played_where_they_are(tokenizers_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--gateway", "exact", "--tokenizers", str(tokenizers_folder), "--model", "qwen2_5", "--case", "2"]
    assert cli.main(asked) == 0
    assert (
        capsys.readouterr().out.splitlines()[2] == "   2  prevented       Pantom has two spellings in tokens [qwen2_5]"
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["--gateway", "exact", "--case", "99"], ["--gateway", "exact", "--model", "other"], ["--nothing"]],
)
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_models_are_written_for_a_gateway_to_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--write-models", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in BUILT]
    files = {file.name for file in (tmp_path / "tiny-glm").iterdir()}
    assert files == {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    stops = json.loads((tmp_path / "tiny-glm" / "generation_config.json").read_text("utf-8"))["eos_token_id"]
    assert len(stops) == 3


def test_it_runs_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), "--gateway", "none", "--case", "11"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("1 cases: 1 prevented, 0 reported, 0 failed, 0 not applicable\n")
