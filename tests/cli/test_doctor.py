"""`doctor`: transformers on their own weights pass, faults are shown with what to do, and the exit status says it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.cli.main import main
from agentgym_tok.doctor import CHECKS

CHAT = ChatFormat.builtin()
Capture = pytest.CaptureFixture[str]

MODULE = """
from toy import Toy

class Greedy(Toy):
    def sampling(self, request):
        return request.sampling.model_copy(update={"temperature": 0.5})

sound, greedy = Toy(), Greedy()
"""


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examined.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "doctor"))


def test_transformers_pass_on_their_own_weights(
    tmp_path: Path, capsys: Capture, save_qwen2: Callable[..., Path]
) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    save_qwen2(tmp_path, initializer_range=0.15)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small matrices, and other tests beside this one
    try:
        capsys.readouterr()
        assert main(["doctor", f"hf:{tmp_path}", "--json"]) == 0
    finally:
        torch.set_num_threads(threads)
    found = json.loads(capsys.readouterr().out)
    statuses = {finding["name"]: finding["status"] for finding in found["findings"]}
    assert tuple(statuses) == CHECKS
    may_be_skipped = {"stop", "stop strings", "no room", "deadline"}
    assert {name for name, status in statuses.items() if status != "ok"} <= may_be_skipped, found
    assert set(statuses.values()) <= {"ok", "skipped"}
    assert found["ok"]
    assert found["requests"] < 400


def test_lines_say_what_was_found_and_what_to_do(policies: None, capsys: Capture) -> None:
    assert main(["doctor", "python:examined:sound"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("toy: ")
    assert " requests, " in lines[0]
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in lines[1:-1] if line[0] != " "] == list(CHECKS)
    assert any(line.startswith("         next: give the same weights by --reference hf:PATH") for line in lines)
    assert lines[-1] == f"sound: {len(CHECKS) - 1} checks passed, 1 could not be made"


def test_a_failure_is_shown_with_exit_status_1(policies: None, capsys: Capture) -> None:
    assert main(["doctor", "python:examined:greedy"]) == 1
    out = capsys.readouterr().out
    assert "failed   temperature 0: " in out
    assert "failed   temperature 1: " in out
    assert "next: something else sets how tokens are drawn" in out
    assert out.splitlines()[-1].startswith("NOT sound: temperature 0, temperature 1")


def test_a_terminal_gets_a_table(policies: None, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["doctor", "python:examined:sound"]) == 0
    out = capsys.readouterr().out
    assert "┃" in out
    assert "log-probabilities" in out


def test_an_engine_that_does_not_answer_is_a_finding(capsys: Capture) -> None:
    pytest.importorskip("aiohttp", reason="the extra engines is not installed")
    assert main(["doctor", "vllm:http://127.0.0.1:1#x"]) == 1
    out = capsys.readouterr().out
    assert "failed   connection: the connection to the engine broke" in out
    assert out.splitlines()[-1] == "NOT sound: connection"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["expert"], "no engine to examine"),
        (["hff:x"], "did you mean hf"),
        (["python:examined:sound", "--reference", "random"], "cannot score given ids"),
        (["vllm:nowhere"], "no address of an engine"),
        ([], "POLICY"),
    ],
)
def test_wrong_usage_has_exit_status_2(policies: None, arguments: list[str], words: str, capsys: Capture) -> None:
    assert main(["doctor", *arguments]) == 2
    assert words in capsys.readouterr().err
