"""`agentgym-tok drift`: what it prints, what it writes, and how it fails."""

import json
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.cli.main import main
from agentgym_tok.trace import TraceStore

Capture = pytest.CaptureFixture[str]
CALL = {"id": "a", "type": "function", "function": {"name": "get", "arguments": "{}"}}
CHATS = [
    {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "I go."}]},
    {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "  I go."}]},
]


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    return file


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    assert main(["eval", "alfworld", "--policy", "expert", "--episodes", "2", "--out", str(folder)]) == 0
    return folder


def test_a_template_alone(capsys: Capture) -> None:
    assert main(["drift", "builtin"]) == 0
    out = capsys.readouterr().out
    assert "builtin: appended messages, dialect hermes" in out
    for name in ("several tool results", "user after reasoning", "default system prompt", "BOS", "stop token"):
        assert name in out
    assert "sampled ids" not in out


def test_a_trace_of_our_own_harness_has_no_drift_on_the_builtin_template(trace: Path, capsys: Capture) -> None:
    assert main(["drift", "builtin", "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    with TraceStore(trace, mode="r") as store:
        turns = [turn for episode in store.episodes() for turn in episode.steps]
    assert f"no drift in {len(turns)} turns" in out
    assert f"0 of {sum(len(turn.completion.ids_T) for turn in turns)} sampled ids (0.0 %)" in out


def test_conversations_without_a_trace(chats: Path, capsys: Capture) -> None:
    assert main(["drift", "builtin", "--chats", str(chats), "--examples", "1"]) == 0
    out = capsys.readouterr().out
    assert "what a text pipeline makes of 2 turns" in out
    assert "retokenised" in out
    assert "turn 0, id" in out
    assert "exact" in out
    assert main(["drift", "builtin", "--chats", str(chats), "--examples", "0"]) == 0
    assert "turn 0, id" not in capsys.readouterr().out


def test_json_holds_the_probes_and_every_drift(chats: Path, trace: Path, capsys: Capture) -> None:
    assert main(["drift", "builtin", "--chats", str(chats), "--trace", str(trace), "--output", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["template"]["fingerprint"] == ChatFormat.builtin().fingerprint
    drift = written["drift"]
    assert drift["by_kind"].keys() == {found["kind"] for found in drift["drifts"]}
    assert drift["sampled"] > drift["wrong"] > 0
    assert main(["drift", "builtin", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["drift"] is None


def test_a_picture(tmp_path: Path, chats: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "drift.png"
    assert main(["drift", "builtin", "--chats", str(chats), "--picture", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert main(["drift", "builtin", "--picture", str(tmp_path / "drift.nothing")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_what_cannot_be_read_is_named(tmp_path: Path, chats: Path, capsys: Capture) -> None:
    chats.write_text(chats.read_text() + "{}\n")
    assert main(["drift", "builtin", "--chats", str(chats)]) == 1
    assert "line 3" in capsys.readouterr().err
    assert main(["drift", "builtin", "--chats", str(tmp_path / "no.jsonl")]) == 1
    assert "no.jsonl" in capsys.readouterr().err
    assert main(["drift", "builtin", "--trace", str(tmp_path / "no-run")]) == 1
    assert "no-run" in capsys.readouterr().err
    assert main(["drift"]) == 2


def test_a_trace_of_another_format_is_refused(trace: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("transformers")
    from importlib import resources

    rules = (resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text("utf-8")
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    template += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "chat_template": template}
    (tmp_path / "tokenizer.json").write_text(rules)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert main(["drift", str(tmp_path), "--trace", str(trace)]) == 1
    assert "another chat format" in capsys.readouterr().err
