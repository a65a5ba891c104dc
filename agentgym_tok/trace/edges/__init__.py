"""Edges that nobody declared, found out from ids and messages."""

from agentgym_tok.trace.edges.classify import classify
from agentgym_tok.trace.edges.lineage import Lineage, Parse
from agentgym_tok.trace.edges.search import FoundEdge

__all__ = ["FoundEdge", "Lineage", "Parse", "classify"]
