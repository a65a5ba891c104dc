"""How passages are written for a policy."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from agentgym_tok.envs.searchqa.retrieval.passage import Passage

__all__ = ["LAYOUTS", "NOTHING_FOUND"]

NOTHING_FOUND = "No search results found."


def _title(passages: Sequence[Passage]) -> str:
    """Return the passages as Search-R1 writes them: the first line of each as its title."""
    lines = []
    for number, passage in enumerate(passages, 1):
        title, _, text = passage.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return "".join(lines).strip()


def _contents(passages: Sequence[Passage]) -> str:
    """Return the passages as verl-agent and SkyRL write them."""
    return "\n".join(f"Doc {number}: {passage.contents}" for number, passage in enumerate(passages, 1))


LAYOUTS: Mapping[str, Callable[[Sequence[Passage]], str]] = MappingProxyType({"title": _title, "contents": _contents})
"""Ways to write passages, by name."""
