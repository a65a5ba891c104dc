"""Ids and log-probabilities as bytes."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace.codec import pack_ids, pack_logprobs, unpack_ids, unpack_logprobs

any_id = st.one_of(st.integers(0, 300), st.integers(0, 200_000), st.integers(0, 2**31 - 1))


def read_ids(blob: bytes) -> list[int]:
    """Read a blob as the format's page describes it, without our code."""
    payload = blob[1:] if blob[0] == 1 else zlib.decompress(blob[1:], wbits=-15)
    ids, shift, value = [], 0, 0
    for byte in payload:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            ids.append(value)
            shift = value = 0
    return ids


def read_logprobs(blob: bytes, length: int) -> bytes:
    plain = {1: len(blob), 2: 1, 3: 1 + 3 * length}[blob[0]]
    payload = blob[1:plain] + (zlib.decompress(blob[plain:], wbits=-15) if blob[plain:] else b"")
    return b"".join(bytes(payload[plane * length + place] for plane in range(4)) for place in range(length))


@given(st.lists(any_id, max_size=200))
@example([0])
@example([127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
@example([5] * 1000)
def test_ids_come_back_and_are_readable_by_the_written_format(ids: list[int]) -> None:
    blob = pack_ids(as_ids(ids))
    back_T = unpack_ids(blob, len(ids))
    assert back_T.tolist() == ids == read_ids(blob)
    assert back_T.dtype == np.int32
    assert not back_T.flags.writeable


@given(st.lists(st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False), max_size=100))
@example([-0.0, 0.0, -1e-45, -3.4e38])
@example([-0.1] * 50)
@example([-0.1 * place for place in range(50)])
def test_logprobs_come_back_bit_for_bit_and_are_readable_by_the_written_format(values: list[float]) -> None:
    logprobs_T = np.array(values, dtype=np.float32)
    blob = pack_logprobs(logprobs_T)
    assert unpack_logprobs(blob, len(values)).tobytes() == logprobs_T.tobytes()
    assert read_logprobs(blob, len(values)) == struct.pack(f"<{len(values)}f", *logprobs_T)


@given(st.binary(max_size=80), st.integers(0, 40))
@example(bytes([2]) + zlib.compress(bytes(10**6), wbits=-15), 3)
def test_damaged_blobs_raise_one_error_or_hold_what_they_should(blob: bytes, length: int) -> None:
    for unpack in (unpack_ids, unpack_logprobs):
        try:
            array_T = unpack(blob, length)
        except TraceCorrupt:
            continue
        assert len(array_T) == length


def test_a_zeroed_blob_is_damage() -> None:
    with pytest.raises(TraceCorrupt, match="unknown codec"):
        unpack_ids(bytes(8), 8)


def test_each_way_of_packing_is_taken_where_it_is_shortest() -> None:
    rng = np.random.default_rng(0)
    noise_T = -rng.gamma(0.3, 1.2, size=80).astype(np.float32)
    assert [pack_logprobs(logprobs_T)[0] for logprobs_T in (noise_T[:8], 0 * noise_T, noise_T)] == [1, 2, 3]
    blob = pack_logprobs(noise_T)
    for damaged in (blob[:200], blob[:-1], blob + b"x", bytes([3]), bytes([3]) + blob[1:241]):
        with pytest.raises(TraceCorrupt):
            unpack_logprobs(damaged, 80)
    with pytest.raises(TraceCorrupt, match="unknown codec"):
        unpack_ids(blob, 80)


def test_text_like_ids_take_less_than_two_bytes_and_noise_less_than_four() -> None:
    rng = np.random.default_rng(0)
    zipf_T = np.minimum(rng.zipf(1.3, size=2000) * 7, 150_000).astype(np.int32)
    assert len(pack_ids(zipf_T)) < 2 * len(zipf_T)
    for count in (80, 2000):
        logprobs_T = -rng.gamma(0.3, 1.2, size=count).astype(np.float32)
        assert len(pack_logprobs(logprobs_T)) < 3.75 * count
