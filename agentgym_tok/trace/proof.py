"""What proves a record: its digest, and a turn's place in the hash chain."""

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import Span
from agentgym_tok.trace.chain import node_digest, redaction_seal, seal, short_seal
from agentgym_tok.trace.encoding import span_from
from agentgym_tok.trace.evidence import evidence_from, evidence_seal
from agentgym_tok.trace.schema import TURN

__all__ = ["NODES", "TURNS", "check_turn", "image_seal", "prove_span", "root_seal", "token_seal"]

NODES: Final = """
    SELECT nodes.*, coalesce(before.digest, roots.digest) AS before FROM nodes
    LEFT JOIN nodes AS before ON before.id = nodes.parent LEFT JOIN roots ON roots.id = nodes.root
"""
"""Records of spans, each with the digest before it."""

TURNS: Final = """
    SELECT turns.*, context.digest AS context_digest, answer.digest AS answer_digest, settings.body AS settings_body,
        texts.body AS texts_body, layers, chosen, experts, counts, support, answer.length AS length FROM turns
    LEFT JOIN nodes AS context ON context.id = turns.context LEFT JOIN nodes AS answer ON answer.id = turns.completion
    LEFT JOIN settings ON settings.id = turns.settings LEFT JOIN texts ON texts.turn = turns.id
    LEFT JOIN evidence ON evidence.turn = turns.id
    WHERE episode = ? ORDER BY seq
"""
"""Records of an episode's turns, each with all that its proof needs."""


def root_seal(row: Any) -> bytes:
    """Return the digest of a record of `roots`."""
    return short_seal(b"", (row["fingerprint"], row["vocab_size"], row["tools"]))


def prove_span(row: Any, redaction: Any | None) -> Span:
    """Return the span of a record of `nodes`, proved by its digest.

    Args:
        row: The record, with the digest `before` it.
        redaction: Its record of `redactions`.

    Raises:
        TraceCorrupt: It is not what was written, or not what its redaction left.
    """
    if (row["root"] is None) == (row["parent"] is None):
        raise TraceCorrupt("a first span has a root, every other one a parent", got=f"{row['root']}, {row['parent']}")
    span = span_from(row)
    digest = node_digest(row["before"], span)
    if redaction is not None:
        _check_redaction(redaction, row["digest"], digest)
    elif digest != row["digest"]:
        raise TraceCorrupt("a span has another digest", got=f"node {row['id']}")
    return span


def token_seal(row: Any) -> bytes:
    """Return the digest of a record of `tokens`."""
    return short_seal(b"", (row["id"], row["text"]))


def image_seal(row: Any) -> bytes:
    """Return the digest of a record of `images`.

    Raises:
        TraceCorrupt: Its body is another file.
    """
    found = hashlib.sha256(row["body"]).hexdigest()
    if found != row["sha256"]:
        raise TraceCorrupt("the file is another one", got=found, expected=row["sha256"])
    return short_seal(b"", (row["sha256"], row["type"]))


def _check_redaction(row: Any, digest: bytes, body: bytes | None) -> None:
    """Check what a redaction left behind, and that the redaction itself is what was written.

    Raises:
        TraceCorrupt: One of them is not.
    """
    if body != row["body"]:
        raise TraceCorrupt("what a redaction left is not what stands there")
    if redaction_seal(row["kind"], digest, row["rule"], row["made"], row["body"]) != row["digest"]:
        raise TraceCorrupt("a redaction is not what was written")


def _check_images(texts: Any, images: AbstractSet[str]) -> None:
    missing = {name for message in texts["messages"] for name in message.get("images", ())} - images
    if missing:
        raise TraceCorrupt("an image that it shows is not there", got=min(missing))


def check_turn(row: Any, tip: bytes, redacted: Mapping[tuple[str, int], Any], images: AbstractSet[str]) -> None:
    """Check a turn, its texts and its evidence against the hash chain.

    Args:
        row: The record of `turns`, with the cells of its `evidence`, `texts_body`, `settings_body`, the digests of its
            spans as `context_digest` and `answer_digest`, and the `length` of its answer.
        tip: The hash before it.
        redacted: Records of `redactions` by kind and record.
        images: Names of the images that are there.

    Raises:
        TraceCorrupt: Something is not what was written.
    """
    experts_T_L_K, support = evidence_from(row, row["length"])
    said = evidence_seal(experts_T_L_K, support)
    evidence, texts = (redacted.get((kind, row["id"])) for kind in ("evidence", "texts"))
    if evidence is not None:
        _check_redaction(evidence, row["evidence"], said)
    elif said != row["evidence"]:
        raise TraceCorrupt("its evidence is not what was written")
    if row["texts_body"] is None:
        raise TraceCorrupt("its texts are missing")
    if texts is not None:
        _check_redaction(texts, row["texts"], short_seal(b"", (row["texts_body"],)))
    elif short_seal(b"", (row["texts_body"],)) != row["texts"]:
        raise TraceCorrupt("its texts are not those that were written")
    if '"images"' in row["texts_body"]:
        _check_images(json.loads(row["texts_body"]), images)
    cells = [row[column] for column in TURN]
    if seal(tip, (row["context_digest"], row["answer_digest"], row["settings_body"], *cells)) != row["hash"]:
        raise TraceCorrupt("the hash chain breaks")
