"""The page on evaluation holds: its commands run, its code prints what it says, its configuration is one."""

import re
import shlex
from pathlib import Path

import pytest

from agentgym_tok.cli.config_file import preset_names
from agentgym_tok.cli.evaluate import PRESETS, Options
from agentgym_tok.cli.main import main
from agentgym_tok.cli.options import parse

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_is_tried() -> None:
    assert set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)) == {"bash", "python", "text", "toml"}


@pytest.mark.parametrize("block", blocks("bash"))
def test_the_commands_of_the_page_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "agentgym-tok"
        assert main(arguments) == 0


def test_the_code_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python"), blocks("text")
    exec(compile(code, "evaluation.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "a.toml").write_text(text, "utf-8")
    home, shop, search = parse(Options, [str(tmp_path / "a.toml")], program="eval").parts()
    assert (home.name, home.samples, home.max_steps) == ("alfworld", 4, 50)
    assert (shop.name, shop.episodes, shop.env) == ("shop", 128, {"goals": "human"})
    assert (search.samples, search.sampling.temperature, search.sampling.max_tokens) == (1, 0, 512)


def test_the_page_names_every_preset() -> None:
    assert set(re.findall(r"^\| `preset:([\w-]+)` \|", PAGE, re.MULTILINE)) == set(preset_names(PRESETS))
