"""The retrievers of Search-QA as a tool, for any world."""

from functools import partial
from typing import Annotated

from pydantic import Field

from agentgym_tok.envs.searchqa.layout import LAYOUTS, NOTHING_FOUND
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever
from agentgym_tok.harness.tools.tool import Tool

__all__ = ["search_tool"]


def search_tool(retriever: Retriever, *, name: str = "search", top_k: int = 3) -> Tool:
    """Return the tool `search(query, top_k)`; episodes share the retriever, and whoever opened it closes it.

    Args:
        retriever: Any of `agentgym_tok.envs.searchqa.retrieval`, or another that keeps its protocol.
        name: What the policy calls it; the world Search-QA has a tool `search` of its own.
        top_k: Passages of a search that does not say how many.
    """
    return Tool(partial(_search, retriever, top_k=top_k), name=name)


def _search(retriever: Retriever, query: str, top_k: Annotated[int, Field(ge=1, le=20)] = 3) -> str:
    """Find passages.

    Args:
        retriever: Where to look.
        query: What to look for.
        top_k: How many passages to show.
    """
    passages = retriever.search([query], top_k)[0]
    return LAYOUTS["title"](passages) if passages else NOTHING_FOUND
