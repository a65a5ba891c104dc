"""The Python blocks of docs/plugins.md run, with a stand-in for verifiers and a small server."""

import re
from pathlib import Path

import pytest

pytest.importorskip("websockets", reason="the extra openenv is not installed")

from wire import Wire

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Harness
from agentgym_tok.trace import TraceStore

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent / "standin"))
    chat, wire = ChatFormat.builtin(), Wire()
    with TraceStore(tmp_path / "run", chat=chat) as store:
        names = {"__name__": "page", "chat": chat, "Harness": Harness, "store": store, "interpreter": None}
        names |= {"policy": lambda ids_T: chat.encode_turn("hello"), "url": wire.url}
        assert len(BLOCKS) == 3
        for block in BLOCKS:
            exec(compile(block, "plugins.md", "exec"), names)
    assert "did you mean expert" in capsys.readouterr().out
    assert [episode.return_ for episode in names["episodes"]] == [3.0] * 4  # type: ignore[attr-defined]
    assert names["info"]["text"] == "seed 7"  # type: ignore[index]
    names["env"].close()  # type: ignore[attr-defined]
    wire.close()


def test_the_page_shows_the_entry_points_of_the_template() -> None:
    declared = (ROOT / "examples" / "plugin" / "pyproject.toml").read_text(encoding="utf-8")
    shown = re.search(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1].strip() in declared
