"""The hash over records is defined on values, and stays what it is."""

import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.tokens import Root, Span
from agentgym_tok.trace.chain import node_digest, root_digest, seal, short_seal

values = st.lists(
    st.one_of(
        st.none(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
        st.binary(max_size=8),
    ),
    max_size=5,
)


def written(cells: list[object]) -> bytes:
    """Write cells as the format's page describes them, without our code."""
    out = b""
    for cell in cells:
        match cell:
            case None:
                out += b"\x00"
            case int():
                out += b"\x01" + struct.pack("<q", cell)
            case float():
                out += b"\x02" + struct.pack("<d", cell)
            case str():
                out += b"\x03" + struct.pack("<Q", len(cell.encode())) + cell.encode()
            case bytes():
                out += b"\x04" + struct.pack("<Q", len(cell)) + cell
    return out


@given(values, st.binary(max_size=32))
def test_seals_follow_the_written_format(cells: list[object], before: bytes) -> None:
    assert seal(before, cells) == hashlib.blake2b(before + written(cells), digest_size=32).digest()
    assert short_seal(before, cells) == hashlib.blake2b(before + written(cells), digest_size=16).digest()


@given(values, values)
def test_different_records_are_written_differently(one: list[object], other: list[object]) -> None:
    same = repr(one) == repr(other)
    assert (seal(b"", one) == seal(b"", other)) == same


def test_digests_of_format_1_never_change() -> None:
    root = root_digest(Root("ab", 10), "[]")
    assert root.hex() == "2d5fda9f92fed8219d51268a6eda7529"
    node = node_digest(root, Span(np.array([1, 2], np.int32), "sampled", np.array([-0.5, -1.0], np.float32), 3))
    assert node.hex() == "70a3e8b5b497ea935d4ff6ae241ef27d"
    assert (
        seal(b"", (None, 1, 0.5, "x", b"y")).hex() == "21925acc3c32967f619a62d003f09ad086deccaa91d753f661e98663a477fef8"
    )


def test_a_node_is_named_by_all_that_it_holds_and_all_before_it() -> None:
    ids_T, logprobs_T = np.array([1, 2], np.int32), np.array([-0.5, -1.0], np.float32)
    spans = [
        Span(ids_T, "sampled", logprobs_T),
        Span(ids_T, "sampled"),
        Span(ids_T, "forced", logprobs_T),
        Span(ids_T, "sampled", logprobs_T, replaced=1),
        Span(ids_T[:1], "sampled", logprobs_T[:1]),
        Span(ids_T, "sampled", logprobs_T * 2),
    ]
    digests = {node_digest(before, span) for before in (b"a" * 16, b"b" * 16) for span in spans}
    assert len(digests) == 2 * len(spans)
