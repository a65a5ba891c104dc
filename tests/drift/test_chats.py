"""Conversations are read line by line, and a line that is none is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import Message
from agentgym_tok.drift import read_chats
from agentgym_tok.errors import DataCorrupt, DataMissing

GOOD = {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "I go."}]}


def write(folder: Path, *lines: Any) -> Path:
    file = folder / "chats.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def test_conversations_with_and_without_tools(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "get"}}]
    first, second = read_chats(write(tmp_path, GOOD, "", "  ", {**GOOD, "tools": tools, "reward": 1}))
    assert first.messages == (Message("user", "Go."), Message("assistant", "I go."))
    assert (first.tools, second.tools) == ((), tuple(tools))


def test_a_content_in_parts_is_joined(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Go "}, {"type": "text", "text": "on."}]
    (found,) = read_chats(write(tmp_path, {"messages": [{"role": "user", "content": parts}]}))
    assert found.messages == (Message("user", "Go on."),)


BAD = [
    "{",
    "[]",
    "nothing",
    {"messages": "Go."},
    {"messages": ["Go."]},
    {},
    {"messages": [{"content": "Go."}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
    {"messages": [{"role": "user", "content": 1}]},
    {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": 1}]}]},
    {"messages": [], "tools": "get"},
    "[" * 100_000,
]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named(tmp_path: Path, line: Any) -> None:
    file = write(tmp_path, GOOD, "", line, GOOD)
    chats = read_chats(file)
    assert next(chats).messages
    with pytest.raises(DataCorrupt, match="line 3"):
        next(chats)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(DataCorrupt, match="line 1"):
        list(read_chats(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"chats\.jsonl"):
        list(read_chats(tmp_path / "chats.jsonl"))
