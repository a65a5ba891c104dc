"""Storing contexts: each span once, however many contexts run through it."""

import sqlite3
import weakref
from dataclasses import dataclass, field

from agentgym_tok.tokens import Context, Ids, Span
from agentgym_tok.trace.chain import node_digest, root_digest
from agentgym_tok.trace.codec import pack_ids, pack_logprobs
from agentgym_tok.trace.encoding import tools_json

__all__ = ["NodeTable", "Plan"]

_INSERT = """
    INSERT INTO nodes (root, parent, origin, length, ids, logprobs, replaced, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


@dataclass(frozen=True, slots=True)
class _Known:
    """Where a context stands in the file."""

    node: int
    digest: bytes


@dataclass(slots=True)
class Plan:
    """Hold what a context and its answer are called, before anything is stored.

    Args:
        context: What an engine received.
        answer: What it answered.
        new: Contexts of the chain that this process has not stored yet, oldest first, with their digests.
        stored: Where the context before the new ones stands; None where there is none.
        context_digest: Digest of the context's node.
        answer_digest: Digest of the answer's node.
        added: Where the new ones were put.
    """

    context: Context
    answer: Span
    new: list[tuple[Context, bytes]]
    stored: _Known | None
    context_digest: bytes
    answer_digest: bytes
    added: dict[Context, _Known] = field(default_factory=dict)

    @property
    def new_ids(self) -> list[Ids]:
        """The ids of all spans that may be new to the file."""
        return [*(context.span.ids_T for context, _ in self.new), self.answer.ids_T]


class NodeTable:
    """Write roots and nodes of one shard.

    Args:
        connection: Of the shard.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # Contexts are immutable, so that the same object is the same chain of spans.
        self._known: weakref.WeakKeyDictionary[Context, _Known] = weakref.WeakKeyDictionary()

    def plan(self, context: Context, answer: Span) -> Plan:
        """Name a context and its answer."""
        pending: list[Context] = []
        stored: _Known | None = None
        for ancestor in context.lineage():
            stored = self._known.get(ancestor)
            if stored is not None:
                break
            pending.append(ancestor)
        digest = root_digest(context.root, tools_json(context.root)) if stored is None else stored.digest
        new: list[tuple[Context, bytes]] = []
        for ancestor in reversed(pending):
            digest = node_digest(digest, ancestor.span)
            new.append((ancestor, digest))
        return Plan(context, answer, new, stored, digest, node_digest(digest, answer))

    def store(self, plan: Plan) -> tuple[int, int]:
        """Store what is missing of a plan, within a transaction.

        Returns:
            Ids of the context's and the answer's node.
        """
        known, missing = plan.stored, plan.new
        # A digest names a span and all that came before it: where it is found, its whole past is stored.
        for place in range(len(plan.new) - 1, -1, -1):
            context, digest = plan.new[place]
            found = self._find(digest)
            if found is not None:
                known = plan.added[context] = found
                missing = plan.new[place + 1 :]
                break
        for context, digest in missing:
            root, parent = (self._root(context), None) if known is None else (None, known.node)
            known = plan.added[context] = _Known(self._insert(root, parent, context.span, digest), digest)
        assert known is not None
        # What follows a span that was not there cannot be there.
        answer = None if missing else self._find(plan.answer_digest)
        if answer is not None:
            return known.node, answer.node
        return known.node, self._insert(None, known.node, plan.answer, plan.answer_digest)

    def committed(self, plan: Plan) -> None:
        """Take a plan's contexts for stored from now on; only after the commit is that true."""
        self._known.update(plan.added)

    def _find(self, digest: bytes) -> _Known | None:
        row = self._connection.execute("SELECT id FROM nodes WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else _Known(row["id"], digest)

    def _insert(self, root: int | None, parent: int | None, span: Span, digest: bytes) -> int:
        logprobs = None if span.logprobs_T is None else pack_logprobs(span.logprobs_T)
        cells = (root, parent, span.origin, len(span), pack_ids(span.ids_T), logprobs, span.replaced, digest)
        node = self._connection.execute(_INSERT, cells).lastrowid
        assert node is not None
        return node

    def _root(self, context: Context) -> int:
        root, tools = context.root, tools_json(context.root)
        cells = (root.fingerprint, root.vocab_size, tools, root_digest(root, tools))
        self._connection.execute(
            "INSERT OR IGNORE INTO roots (fingerprint, vocab_size, tools, digest) VALUES (?, ?, ?, ?)", cells
        )
        row = self._connection.execute("SELECT id FROM roots WHERE digest = ?", cells[-1:]).fetchone()
        return int(row["id"])
