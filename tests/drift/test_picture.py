"""A picture is written where matplotlib is there, and the error says how to get it where it is not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.drift import audit, draw, probe_template
from agentgym_tok.errors import ConfigError, MissingExtra


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("drifts", ["no report", "no drift", "drift"])
def test_pictures_of_all_kinds(builtin: ChatFormat, words: Any, tmp_path: Path, ending: str, drifts: str) -> None:
    pytest.importorskip("matplotlib")
    played = words.play(builtin, [words.user("$x_1$ <|im_end|>" if drifts == "drift" else "Go.")]).say("Fine.")
    report = None if drifts == "no report" else audit(builtin, played.episode())
    file = tmp_path / f"drift.{ending}"
    draw(file, probe_template(builtin), report)
    beginning = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert file.read_bytes().startswith(beginning)
    if ending == "svg" and drifts == "drift":
        assert file.stat().st_size > 20_000


def test_a_picture_that_cannot_be_written(builtin: ChatFormat, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("drift.txt", "nowhere/drift.png"):
        with pytest.raises(ConfigError, match="cannot be written"):
            draw(tmp_path / name, probe_template(builtin))


def test_without_matplotlib_the_error_names_the_extra(
    builtin: ChatFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install \"agentgym-tok\[plot\]\""):
        draw(tmp_path / "drift.png", probe_template(builtin))
