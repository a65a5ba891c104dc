"""mini-swe-agent on a toy repository, through litellm: with calls of its tool, and with commands in plain text."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import aborted, kinds, says

from agentgym_tok import ChatFormat, Message

MINI = Path(sys.executable).parent / "mini"
pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not MINI.exists(), reason="no mini-swe-agent: make clients"),
]

BASH: Any = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
}
COMMANDS = [
    "ls -la",
    "cat add.py",
    "python3 check.py",
    "seq 20000",  # more than it shows
    "sed -i 's/a - b/a + b/' add.py",
    "python3 check.py",
    "git diff",
    "git add -A && git commit -qm 'Add, not subtract'",
    "git status --short",
    "git log --oneline",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git log --format=%s",
]
PARALLEL, WRONG, HANG, LAST = 1, 5, 8, len(COMMANDS) + 2
"""The turns with two calls, in a form that it does not take, and that never ends, and the number of all of them."""


def plan(number: int) -> int:
    """Return which command a turn says: one that was refused or broken off is said again."""
    return number - (number > WRONG) - (number > HANG)


def call(context: str, number: int) -> Message:
    if number == WRONG:
        return says("I think that it is right now.")
    command = COMMANDS[plan(number)]
    more = [("bash", {"command": "cat check.py"})] if number == PARALLEL else []
    return says("Next.", ("bash", {"command": command}), *more)


def block(context: str, number: int) -> Message:
    if number == WRONG:
        return says("I think that it is right now.")
    return says(f"THOUGHT: Next.\n\n```mswea_bash_command\n{COMMANDS[plan(number)]}\n```")


def run_mini(it: Any, folder: Path, configs: list[str]) -> subprocess.CompletedProcess[str]:
    """Run its command `mini` as anybody would."""
    own = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_GLOBAL_CONFIG_DIR": str(it.run.parent),
        "MSWEA_SILENT_STARTUP": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    settings = [*configs, "model.cost_tracking=ignore_errors", "model.model_kwargs.timeout=2"]
    options = [option for setting in settings for option in ("-c", setting)]
    command = [MINI, "-y", "--exit-immediately", "-m", "openai/m", *options]
    return subprocess.run(
        [*command, "-t", "add() subtracts.", "-o", it.run.parent / "trajectory.json"],
        cwd=folder,
        env={**os.environ, **own, **it.session.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("say", "config", "kind"), [(call, "mini.yaml", "litellm"), (block, "mini_textbased.yaml", "litellm_textbased")]
)
def test_it_mends_a_repository(
    stage: Any, chat: ChatFormat, repository: Path, say: Any, config: str, kind: str
) -> None:
    with stage(chat, say, [BASH], hangs=[HANG]) as it:
        done = run_mini(it, repository, [config, f"model.model_class={kind}"])
        assert done.returncode == 0, done.stdout + done.stderr
        turns = it.prove()
    expected: list[tuple[str, int | None]] = [("continuation", place - 1 - (place > HANG)) for place in range(LAST)]
    expected[0], expected[HANG + 1] = ("fresh_prompt", None), ("retry", HANG)
    expected[WRONG + 1] = ("continuation", WRONG - 1)  # it never shows an answer again that it refused
    assert kinds(turns) == expected
    assert aborted(turns) == [turns[HANG]]
    assert [turn.facts["retry"] for turn in turns if "retry" in turn.facts] == ["retry_header"]
    assert "elided" in it.policy.contexts[COMMANDS.index("seq 20000") + 1]
    subprocess.run([sys.executable, "check.py"], cwd=repository, check=True)
