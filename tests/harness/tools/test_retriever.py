"""A retriever of Search-QA answers as a tool."""

import asyncio
import pickle
from pathlib import Path

import pytest

from agentgym_tok.envs.searchqa.retrieval import bm25, corpus, passage
from agentgym_tok.harness.tools import Toolbox
from agentgym_tok.harness.tools.retriever import search_tool
from agentgym_tok.types import ToolCall

PASSAGES = [
    passage.Passage("a", "Ada Lovelace", "Ada Lovelace wrote the first program."),
    passage.Passage("b", "Charles Babbage", "Babbage designed the first engine."),
]


@pytest.fixture
def retriever(tmp_path: Path) -> bm25.BM25Retriever:
    return bm25.BM25Retriever(corpus.Corpus.store(PASSAGES, cache=tmp_path))


def test_it_finds_passages_and_says_where_there_are_none(retriever: bm25.BM25Retriever) -> None:
    box = Toolbox(search_tool(retriever, name="wiki", top_k=1))
    calls = [
        ToolCall("wiki", {"query": "program first"}),
        ToolCall("wiki", {"query": "first", "top_k": 2}),
        ToolCall("wiki", {"query": "walrus"}),
        ToolCall("wiki", {"query": "first", "top_k": 0}),
    ]
    one, two, none, wrong = asyncio.run(box.run_all(calls))
    assert one.message.content == 'Doc 1(Title: "Ada Lovelace") Ada Lovelace wrote the first program.'
    assert [line[:5] for line in two.message.content.splitlines()] == ["Doc 1", "Doc 2"]
    assert none.message.content == "No search results found."
    assert wrong.mistaken
    assert box.schemas[0]["function"] == {
        "name": "wiki",
        "description": "Find passages.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "top_k": {
                    "type": "integer",
                    "description": "How many passages to show.",
                    "default": 1,
                    "maximum": 20,
                    "minimum": 1,
                },
            },
            "required": ["query"],
        },
    }


def test_episodes_share_it_and_processes_open_it_again(retriever: bm25.BM25Retriever) -> None:
    box = Toolbox(search_tool(retriever))
    assert box.fresh().tools == box.clone().tools == box.tools
    again = pickle.loads(pickle.dumps(box))
    call = ToolCall("search", {"query": "engine"})
    assert asyncio.run(again.run(call)).message == asyncio.run(box.run(call)).message


def test_a_search_that_fails_is_the_tools_failure(retriever: bm25.BM25Retriever) -> None:
    retriever.close()
    result = asyncio.run(Toolbox(search_tool(retriever)).run(ToolCall("search", {"query": "x"})))
    assert result.failure is not None
    assert (result.failure.boundary, result.failure.kind, result.mistaken) == ("tool", "WorldError", False)
