"""The page on training holds: its code runs and prints what it says, its configuration is one."""

import re
import tomllib
from pathlib import Path

import pytest

from agentgym_tok.learner.losses import OBJECTIVES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "training.md").read_text("utf-8")


def block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_code_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), "training.md", "exec"), {})
    assert capsys.readouterr().out == block("text")


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    from agentgym_tok.cli.options import parse
    from agentgym_tok.cli.train import Options

    (tmp_path / "a.toml").write_text(block("toml"), "utf-8")
    options = parse(Options, [str(tmp_path / "a.toml")], program="train")
    assert options.checked().model_dump()["tasks"] == tomllib.loads(block("toml"))["tasks"]


def test_the_page_says_what_every_objective_needs() -> None:
    table = PAGE.partition("| objective | needs |")[2].partition("**Skills**")[0]
    assert set(OBJECTIVES) <= set(re.findall(r"`(\w+)`", table))
