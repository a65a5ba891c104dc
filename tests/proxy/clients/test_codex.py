"""Codex, the terminal agent from npm, on a toy repository: parallel calls, a stream that breaks off, a compaction."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import aborted, kinds, says

from agentgym_tok import ChatFormat, Message

CODEX = Path(sys.prefix) / "npm" / "node_modules" / ".bin" / "codex"
pytestmark = [pytest.mark.deep, pytest.mark.skipif(not CODEX.exists(), reason="codex is not here: make clients")]

EXEC: Any = {
    "type": "function",
    "function": {
        "name": "exec_command",
        "parameters": {
            "type": "object",
            "properties": {"cmd": {"type": "string"}, "max_output_tokens": {"type": "number"}},
        },
    },
}
PARALLEL, HANG, SUMMARY, LAST = 1, 4, 9, 12
"""The turns with two calls, that never ends, that sums up for a compaction, and the last one."""
COMMANDS = {
    0: "ls",
    1: "cat add.py",
    2: "python3 check.py",
    3: "sed -i 's/a - b/a + b/' add.py",
    4: "git diff",
    5: "git diff",
    6: "python3 check.py",
    7: "seq 4000",  # so long that it compacts
    8: "git status",
    10: "git log",
    11: "git status --short",
}
CONFIG = """
model = "m"
model_provider = "proxy"
model_context_window = 200000
model_auto_compact_token_limit = 15000
approval_policy = "never"
sandbox_mode = "danger-full-access"
[analytics]
enabled = false
[model_providers.proxy]
name = "proxy"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
stream_max_retries = 2
stream_idle_timeout_ms = 2000
"""


def say(context: str, number: int) -> Message:
    if number == SUMMARY:
        assert "CONTEXT CHECKPOINT COMPACTION" in context[-2000:]
        return says("The mistake is mended, only the log is left to read.")
    if number == LAST:
        return says("It adds now.")
    more = [("exec_command", {"cmd": "cat check.py"})] if number == PARALLEL else []
    return says("Next.", ("exec_command", {"cmd": COMMANDS[number], "max_output_tokens": 20000}), *more)


def run_codex(it: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal; a stream that says nothing for two seconds is asked for again."""
    home = it.run.parent / "codex"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=it.session.environ["OPENAI_BASE_URL"]))
    return subprocess.run(
        [CODEX, "exec", "add() subtracts."],
        cwd=folder,
        env={**os.environ, "HOME": str(home), "CODEX_HOME": str(home), **it.session.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_mends_a_repository(stage: Any, chat: ChatFormat, repository: Path) -> None:
    with stage(chat, say, [EXEC], hangs=[HANG]) as it:
        done = run_codex(it, repository)
        if "System message must be at the beginning" in done.stderr:
            pytest.skip("it sends two system messages, and this model's template takes one")
        assert done.returncode == 0, done.stderr
        turns = it.prove()
    expected: list[tuple[str, int | None]] = [("continuation", place - 1) for place in range(LAST + 1)]
    expected[0], expected[HANG + 1] = ("fresh_prompt", None), ("continuation", HANG - 1)
    # What it asks for the summary holds a shorter result than the turn before saw.
    expected[SUMMARY], expected[SUMMARY + 1] = ("unknown", SUMMARY - 1), ("compaction", SUMMARY)
    assert kinds(turns) == expected
    assert aborted(turns) == [turns[HANG]]
    # It keeps the words that it got of that turn, and the next one goes on behind them.
    assert turns[HANG + 1].context.span.origin == "forced"
    subprocess.run([sys.executable, "check.py"], cwd=repository, check=True)
