"""`bench trace`: each byte of the file is counted once, and the JSON that it is compared with is not made up."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.cli import bench_trace
from agentgym_tok.cli.main import main
from agentgym_tok.trace import Turn

CHAT = ChatFormat.builtin()


@pytest.fixture(scope="module")
def walk() -> list[Turn]:
    text = "".join(CHAT.token_text(index) for index in (300, 9, 2000, 77, 1234)) * 40
    return bench_trace.conversation(bench_trace._Pool(CHAT, text), "c", turns=6, new=40)


def test_a_conversation_grows_by_new_ids_of_which_the_share_is_sampled(walk: list[Turn]) -> None:
    assert [len(turn.context) for turn in walk] == [34 + 40 * index for index in range(6)]
    assert {len(turn.completion.ids_T) for turn in walk} == {6}
    assert CHAT.decode(walk[3].context.span.ids_T) == walk[3].messages[0].content


def test_the_json_has_the_size_that_is_told(walk: list[Turn]) -> None:
    records: list[dict[str, Any]] = []
    for turn in walk:
        logprobs_T = turn.completion.logprobs_T
        assert logprobs_T is not None
        ids = {"prompt": turn.context.ids.tolist(), "completion": turn.completion.ids_T.tolist()}
        records.append({**ids, "logprobs": logprobs_T.tolist()})
    written = [json.dumps(record, separators=(",", ":")) for record in records]
    assert bench_trace._json_size(walk) == sum(map(len, written))


def test_each_byte_of_the_file_is_counted_once(walk: list[Turn], tmp_path: Path) -> None:
    figures, tables = bench_trace.measure(tmp_path, CHAT, [walk])
    counted = figures["ids"] * figures["bytes an id"]
    counted += figures["log-probabilities"] * figures["bytes a log-probability"]
    counted += 6 * (figures["texts for people, bytes a turn"] + figures["the rest, bytes a turn"])
    shard = tmp_path / "shards" / "main.sqlite"
    assert counted == pytest.approx(figures["file, bytes"])
    assert figures["file, bytes"] == shard.stat().st_size
    assert (figures["ids"], figures["log-probabilities"]) == (240, 36)
    with sqlite3.connect(shard) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    if tables:
        assert tables.keys() == names | {"sqlite_schema"}
        assert sum(sizes["bytes"] for sizes in tables.values()) == figures["file, bytes"]


@pytest.mark.parametrize("text", ["prose", "world"])
def test_the_command_shows_and_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "trace.json"
    options = ["--conversations", "2", "--turns", "3", "--new-ids", "60", "--new-ids", "20", "--text", text]
    assert main(["bench", "trace", *options, "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert "append with commit, turns/s" in out
    written = json.loads(file.read_text())
    assert written["config"]["text"] == text
    assert set(written["figures"]) == {"60 new ids a turn", "20 new ids a turn"}
    for figures in written["figures"].values():
        assert all(value > 0 for value in figures.values())
