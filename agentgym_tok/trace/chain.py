"""Hashes over records, defined on values rather than on bytes of the file, so that any reader can recompute them."""

import hashlib
import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

from agentgym_tok.tokens import Root, Span
from agentgym_tok.trace.codec import ids_bytes, logprobs_bytes

__all__ = ["Value", "node_digest", "redaction_seal", "root_digest", "seal", "short_seal"]

Value: TypeAlias = int | float | str | bytes | None
"""What a cell of a table can hold."""

CHAIN_SIZE: Final = 32
NODE_SIZE: Final = 16

_REAL = struct.Struct("<Bd").pack
_LENGTH = struct.Struct("<BQ").pack


def seal(previous: bytes, values: Iterable[Value]) -> bytes:
    """Hash a record together with the hash before it.

    Each value is written as a kind byte and its content: 0 nothing; 1 int64; 2 float64; 3 length (uint64) and UTF-8;
    4 length (uint64) and bytes; all little-endian.

    Args:
        previous: The hash before; empty at a beginning.
        values: The record's cells, in the order of the schema.

    Returns:
        blake2b-256, 32 bytes.
    """
    return hashlib.blake2b(previous + _canonical(values), digest_size=CHAIN_SIZE).digest()


def short_seal(previous: bytes, values: Iterable[Value]) -> bytes:
    """Hash as `seal` does, to blake2b-128, 16 bytes: names a node, or guards a small record."""
    return hashlib.blake2b(previous + _canonical(values), digest_size=NODE_SIZE).digest()


def root_digest(root: Root, tools: str) -> bytes:
    """Name a root by its fingerprint, vocabulary size and the JSON text of its tools."""
    return short_seal(b"", (root.fingerprint, root.vocab_size, tools))


def node_digest(parent: bytes, span: Span) -> bytes:
    """Name a span together with everything before it.

    Args:
        parent: Digest of the node before it, or of the root.
        span: The span.
    """
    logprobs = None if span.logprobs_T is None else logprobs_bytes(span.logprobs_T)
    return short_seal(parent, (span.origin, span.replaced, ids_bytes(span.ids_T), logprobs))


def redaction_seal(kind: str, digest: bytes, rule: str, made: float, body: bytes) -> bytes:
    """Seal a redaction.

    Args:
        kind: Table of the record.
        digest: What the record was sealed with before, and still is.
        rule: What was looked for.
        made: Unix time in seconds.
        body: Digest that the record would have as it stands now.
    """
    return short_seal(b"", (kind, digest, rule, made, body))


def _canonical(values: Iterable[Value]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(b"\0")
        elif isinstance(value, str):
            data = value.encode()
            parts += (_LENGTH(3, len(data)), data)
        elif isinstance(value, bytes):
            parts += (_LENGTH(4, len(value)), value)
        elif isinstance(value, float):
            parts.append(_REAL(2, value))
        elif isinstance(value, int):
            parts.append(b"\1" + value.to_bytes(8, "little", signed=True))
        else:
            raise TypeError(f"{type(value).__name__} {value!r:.60}")  # nothing is sealed that no cell can hold
    return b"".join(parts)
