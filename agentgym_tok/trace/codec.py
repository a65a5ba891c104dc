"""Ids and log-probabilities as bytes, bit for bit; the layout is written down in docs/design/trace.md."""

import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import InvalidIds, InvalidLogprobs, TraceCorrupt
from agentgym_tok.tokens import Ids, Logprobs, as_ids, as_logprobs

__all__ = ["ids_bytes", "logprobs_bytes", "pack_ids", "pack_logprobs", "unpack_ids", "unpack_logprobs"]

# The first byte of a blob. Zero is never one, so that a zeroed page is noticed.
PLAIN: Final = 1
DEFLATED: Final = 2
SPLIT: Final = 3
"""Three byte planes plain and the highest deflated: the lower bits of a mantissa are noise."""

_SHIFTS: Final = np.arange(0, 35, 7, dtype=np.uint32)
_WIDEST: Final = len(_SHIFTS)
# Below this many bytes deflate's own bookkeeping eats what it saves.
_WORTH_DEFLATING: Final = 48
_RAW_DEFLATE: Final = -15


def ids_bytes(ids_T: Ids) -> bytes:
    """Return ids as int32, little-endian: the bytes that digests are taken of."""
    return ids_T.astype("<i4", copy=False).tobytes()


def logprobs_bytes(logprobs_T: Logprobs) -> bytes:
    """Return log-probabilities as float32, little-endian: the bytes that digests are taken of."""
    return logprobs_T.astype("<f4", copy=False).tobytes()


def pack_ids(ids_T: Ids) -> bytes:
    """Pack ids as LEB128 numbers, deflated where that is shorter."""
    return _shortest(_to_leb128(ids_T)) if len(ids_T) else bytes([PLAIN])


def unpack_ids(blob: bytes, length: int) -> Ids:
    """Return the ids of a blob.

    Raises:
        TraceCorrupt: It does not hold exactly `length` ids.
    """
    packed = _payload(blob, _WIDEST * length, "ids")
    ids_T = _from_leb128(np.frombuffer(packed, dtype=np.uint8))
    if ids_T is None or len(ids_T) != length:
        got = "broken numbers" if ids_T is None else f"{len(ids_T)} ids"
        raise TraceCorrupt("ids are damaged", where="ids blob", got=got, expected=f"{length} ids")
    try:
        return as_ids(ids_T, where="ids blob")
    except InvalidIds as error:
        raise TraceCorrupt("ids are damaged", where="ids blob", got=error.got) from error


def pack_logprobs(logprobs_T: Logprobs) -> bytes:
    """Pack float32 by byte planes (the exponents side by side), deflated whole or in part where that is shorter."""
    raw = logprobs_bytes(logprobs_T)
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 4).T.tobytes()
    packed = _shortest(planes)
    if len(planes) >= _WORTH_DEFLATING:
        lower, highest = planes[: 3 * len(logprobs_T)], planes[3 * len(logprobs_T) :]
        split = bytes([SPLIT]) + lower + zlib.compress(highest, wbits=_RAW_DEFLATE)
        packed = min(packed, split, key=len)
    return packed


def unpack_logprobs(blob: bytes, length: int) -> Logprobs:
    """Return the log-probabilities of a blob.

    Raises:
        TraceCorrupt: It does not hold exactly `length` possible log-probabilities.
    """
    planes = b""
    if blob[:1] == bytes([SPLIT]):
        planes, blob = blob[1 : 1 + 3 * length], bytes([DEFLATED]) + blob[1 + 3 * length :]
    planes += _payload(blob, 4 * length, "log-probabilities")
    if len(planes) != 4 * length:
        got = f"{len(planes)} bytes"
        raise TraceCorrupt("log-probabilities are damaged", where="logprobs blob", got=got, expected=4 * length)
    raw = np.frombuffer(planes, dtype=np.uint8).reshape(4, length).T.tobytes()
    try:
        return as_logprobs(np.frombuffer(raw, dtype="<f4"), length, where="logprobs blob")
    except InvalidLogprobs as error:
        raise TraceCorrupt("log-probabilities are damaged", where=error.where, got=error.got) from error


def _shortest(payload: bytes) -> bytes:
    if len(payload) >= _WORTH_DEFLATING:
        deflated = zlib.compress(payload, wbits=_RAW_DEFLATE)
        if len(deflated) < len(payload):
            return bytes([DEFLATED]) + deflated
    return bytes([PLAIN]) + payload


def _payload(blob: bytes, most: int, what: str) -> bytes:
    codec, payload = blob[:1], blob[1:]
    if codec == bytes([PLAIN]):
        return payload
    if codec != bytes([DEFLATED]):
        raise TraceCorrupt("unknown codec", where=f"{what} blob", got=codec.hex() or "nothing", expected="01, 02 or 03")
    inflater = zlib.decompressobj(wbits=_RAW_DEFLATE)
    try:
        # The bound keeps a damaged blob from filling the memory; zero would mean no bound.
        plain = inflater.decompress(payload, most + 1)
    except zlib.error as error:
        raise TraceCorrupt("a blob cannot be inflated", where=f"{what} blob", got=str(error)) from error
    if len(plain) > most or not inflater.eof or inflater.unused_data:
        raise TraceCorrupt("a blob does not end where it should", where=f"{what} blob", got=f"{len(plain)} bytes")
    return plain


def _to_leb128(ids_T: Ids) -> bytes:
    widest = max(1, -(-int(ids_T.max()).bit_length() // 7))
    rest = ids_T.astype(np.uint32)[:, None] >> _SHIFTS[:widest]
    groups = rest.astype(np.uint8) & 0x7F
    groups |= (rest > 0x7F).view(np.uint8) << 7
    used = rest != 0
    used[:, 0] = True
    return bytes(groups[used])


def _from_leb128(packed: NDArray[np.uint8]) -> NDArray[np.int64] | None:
    if not len(packed):
        return np.empty(0, dtype=np.int64)
    last = packed < 0x80
    if not last[-1]:
        return None
    ends = np.flatnonzero(last)
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts + 1
    if int(widths.max()) > _WIDEST:
        return None
    places = np.arange(len(packed)) - np.repeat(starts, widths)
    return np.add.reduceat((packed & 0x7F).astype(np.int64) << (7 * places), starts)
