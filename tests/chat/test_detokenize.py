"""Pieces of text are whole characters, and together they are the decoded ids."""

import functools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat.detokenize import Detokenizer
from agentgym_tok.errors import InvalidIds

STOPS = ("</action>", "\n\n", "🤖!", "aab", "<|im_end|>")

texts = st.lists(st.sampled_from(["🤖", "é", "\u200d", "👩‍🔬", "a", "aa", "b", "\n", *STOPS]), max_size=12).map("".join)


@functools.cache
def single_bytes(chat: ChatFormat) -> dict[int, int]:
    return {entry[0]: index for index, entry in enumerate(chat._tokenizer.token_bytes) if len(entry) == 1}


def byte_ids(chat: ChatFormat, raw: bytes) -> list[int]:
    """Spell bytes one id each, as a policy may."""
    return [single_bytes(chat)[byte] for byte in raw]


def stream(detokenizer: Detokenizer, ids: list[int], sizes: list[int]) -> list[str]:
    """Push ids in pieces of these sizes, again and again, and finish."""
    pieces, place = [], 0
    while place < len(ids):
        for size in [*sizes, 1]:
            pieces.append(detokenizer.push(ids[place : place + size]))
            place += size
    return [*pieces, detokenizer.finish()]


@given(st.lists(st.integers(0, 4095), max_size=60), st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=200, deadline=None)
def test_pieces_of_any_ids_are_the_decoded_ids(builtin: ChatFormat, ids: list[int], sizes: list[int]) -> None:
    ids = [index % builtin.vocab_size for index in ids]
    for hold in ((), STOPS):
        assert "".join(stream(Detokenizer(builtin, hold), ids, sizes)) == builtin.decode(ids)


@given(st.binary(max_size=40) | texts.map(str.encode), st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=300, deadline=None)
@example("🤖".encode()[:3] + "🤖".encode(), [])
@example("🤖".encode()[:3], [])
@example(b"\xf0\x9f\xff\xc3", [2])
@example(b"\xed\xa0\x80\xed\xb0\x80", [])
@example(b"\xf8\x88\x80\x80\x80a", [])
def test_pieces_of_any_bytes_are_the_decoded_bytes(builtin: ChatFormat, raw: bytes, sizes: list[int]) -> None:
    ids = byte_ids(builtin, raw)
    for hold in ((), STOPS):
        assert "".join(stream(Detokenizer(builtin, hold), ids, sizes)) == raw.decode("utf-8", "replace")


@given(texts, st.data())
@settings(max_examples=200, deadline=None)
def test_a_piece_never_holds_half_a_character(chat: ChatFormat, text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    ids = byte_ids(chat, raw[:cut])
    try:
        ids += chat.encode(raw[cut:].decode()).tolist()
    except UnicodeDecodeError:
        ids += byte_ids(chat, raw[cut:])
    detokenizer = Detokenizer(chat)
    pieces = [detokenizer.push([index]) for index in ids]
    assert "".join(pieces) == text
    assert detokenizer.finish() == ""


def test_a_character_waits_for_its_last_byte(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin)
    assert [detokenizer.push([index]) for index in byte_ids(builtin, "🤖é".encode())] == ["", "", "", "🤖", "", "é"]


def test_what_can_no_longer_become_a_character_is_told_at_once(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin)
    assert [detokenizer.push([index]) for index in byte_ids(builtin, b"\xf0\x9f(\xffa")] == [
        "",
        "",
        "\ufffd(",
        "\ufffd",
        "a",
    ]


def test_a_cut_character_is_told_at_the_end_and_the_next_stream_begins_clean(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin, hold=["stop"])
    assert detokenizer.push(byte_ids(builtin, b"ast\xf0\x9f")) == "a"
    assert detokenizer.finish() == "st\ufffd"
    assert detokenizer.push(byte_ids(builtin, b"\xa4\x96st")) == "\ufffd\ufffd"
    assert detokenizer.finish() == "st"
    assert detokenizer.finish() == ""


@given(texts, st.lists(st.integers(0, 3), max_size=3))
@settings(max_examples=200, deadline=None)
def test_no_piece_ends_inside_a_stop_string(builtin: ChatFormat, text: str, sizes: list[int]) -> None:
    pieces = stream(Detokenizer(builtin, STOPS), byte_ids(builtin, text.encode()), sizes)
    assert "".join(pieces) == text
    for match in re.finditer("|".join(map(re.escape, STOPS)), text):
        place = 0
        for piece in pieces:
            place += len(piece)
            assert not match.start() < place < match.end(), (pieces, match)


def test_only_what_may_begin_a_stop_string_is_held(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin, hold=["</action>", "aab"])
    pushed = [
        detokenizer.push(byte_ids(builtin, text.encode())) for text in ("Now", " <", "/act", "or", "aaa", "b", "b")
    ]
    assert pushed == ["Now", " ", "", "</actor", "a", "aab", "b"]
    assert detokenizer.finish() == ""


def test_a_stop_string_of_one_character_or_none_holds_nothing(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin, hold=["\n", ""])
    assert [detokenizer.push(byte_ids(builtin, text)) for text in (b"a", b"\n", b"b")] == ["a", "\n", "b"]


def test_a_wrong_id_changes_nothing(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin)
    first, *rest = byte_ids(builtin, "é".encode())
    assert detokenizer.push([first]) == ""
    with pytest.raises(InvalidIds):
        detokenizer.push([builtin.vocab_size])
    assert detokenizer.push(rest) == "é"


def test_control_tokens_are_spelled_out(builtin: ChatFormat) -> None:
    detokenizer = Detokenizer(builtin)
    assert detokenizer.push(builtin.encode_turn("Hi.")) == "Hi.<|im_end|>"
    assert detokenizer.push([]) == ""
