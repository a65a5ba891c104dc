"""Text to ids and back: every byte comes back, and only what is meant becomes a control token."""

import unicodedata
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from agentgym_tok import ChatFormat
from agentgym_tok.chat.tokenizer import Tokenizer, free_cut, replace_surrogates
from agentgym_tok.errors import ChatError, InvalidIds

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# Text that is likely to spell something: whole tokens, their halves, cut characters, and what stands around them.
pieces = st.one_of(
    st.sampled_from(
        [*CONTROL, "<\uff5cUser\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|image_pad|>", "<tool_response>"]
    ),
    st.sampled_from(CONTROL).flatmap(lambda token: st.integers(1, len(token)).map(lambda end: token[:end])),
    st.sampled_from(CONTROL).flatmap(lambda token: st.integers(0, len(token)).map(lambda start: token[start:])),
    st.sampled_from(["<", "|", ">", "\0", " ", "\n", "\ue000", "\ue001", "\u0338", "a", "\r\n", "é"]),
)
hostile = st.lists(pieces, max_size=12).map("".join)


def tokenizer_of(chat: ChatFormat) -> Tokenizer:
    return chat._tokenizer


def make(*added: str | AddedToken, normalizer: Any = None) -> Tokenizer:
    """Return a byte-level tokenizer that knows single bytes, and these added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens([AddedToken(one, normalized=False) if isinstance(one, str) else one for one in added])
    return Tokenizer(backend)


# ---- there and back


@given(any_text | hostile)
@settings(max_examples=150, deadline=None)
def test_any_text_comes_back_from_its_ids(builtin: ChatFormat, text: str) -> None:
    assert builtin.decode(builtin.encode(text)) == text
    assert builtin.decode(tokenizer_of(builtin).encode(text)) == text


@given(any_text | hostile)
@settings(max_examples=40, deadline=None)
def test_models_tokenizers_give_the_text_back_up_to_their_normal_form(
    qwen2_5: ChatFormat, deepseek_v3: ChatFormat, text: str
) -> None:
    assert deepseek_v3.decode(deepseek_v3.encode(text)) == text
    # Qwen normalises to NFC, piece by piece between cuts.
    back = qwen2_5.decode(qwen2_5.encode(text))
    assert unicodedata.normalize("NFC", back) == unicodedata.normalize("NFC", text)


def test_bytes_that_are_no_utf8_become_replacement_characters(builtin: ChatFormat) -> None:
    table = tokenizer_of(builtin).token_bytes
    lone = table.index(b"\xff")
    first, second = table.index(b"\xc3"), table.index(b"\xa9")
    assert builtin.decode([lone]) == "\ufffd"
    assert builtin.decode([first, second]) == "é"
    assert builtin.decode([first]) == "\ufffd"
    assert builtin.token_text(first) == "\ufffd"
    assert tokenizer_of(builtin).decode_bytes([first]) == b"\xc3"


def test_every_id_has_its_bytes(chat: ChatFormat) -> None:
    tokenizer = tokenizer_of(chat)
    assert len(tokenizer.token_bytes) == chat.vocab_size
    for index, text in tokenizer.control_texts.items():
        assert tokenizer.token_bytes[index] == text.encode()
        assert chat.token_text(index) == text
    draw = np.random.default_rng(0).integers(chat.vocab_size, size=300)
    ids = [int(index) for index in draw if tokenizer.token_bytes[index]]
    # The library's own decoder agrees wherever the bytes are whole characters.
    expected = tokenizer._backend.decode(ids, skip_special_tokens=False)
    assert chat.decode(ids) == expected


@pytest.mark.parametrize("bad", [[-1], [10**9], [1.0], ["a"], [[1]]])
def test_ids_outside_the_vocabulary_are_not_decoded(builtin: ChatFormat, bad: Any) -> None:
    with pytest.raises(InvalidIds):
        builtin.decode(bad)
    with pytest.raises(InvalidIds):
        builtin.parse(bad)


def test_a_single_id_outside_the_vocabulary_has_no_text(builtin: ChatFormat) -> None:
    for index in (-1, builtin.vocab_size):
        with pytest.raises(InvalidIds):
            builtin.token_text(index)


# ---- untrusted text


@given(hostile | any_text)
@settings(max_examples=300, deadline=None)
@example("<|im_end|>")
@example("<|im_<|im_end|>end|>")
@example("<|im_<|im_<|im_end|>end|>end|>")
@example("<<|im_end|>>")
@example("<\ue000|im_end|>")
@example("".join(map(chr, range(0xE000, 0xE100))) + "<|im_end|>")
@example("<|im_end|>\0<think")
@example("<|im_end|>" * 50)
@example("")
def test_untrusted_text_never_yields_a_control_token(builtin: ChatFormat, text: str) -> None:
    ids = set(builtin.encode(text).tolist())
    assert not ids & builtin.control_ids
    assert builtin.decode(builtin.encode(text)) == text


@given(hostile)
@settings(max_examples=60, deadline=None)
@example("<\uff5cUser\uff5c><|im_end|><think>")
def test_untrusted_text_never_yields_a_control_token_of_a_model(
    qwen2_5: ChatFormat, qwen3: ChatFormat, deepseek_v3: ChatFormat, text: str
) -> None:
    for chat in (qwen2_5, qwen3, deepseek_v3):
        assert not set(chat.encode(text).tolist()) & chat.control_ids


def test_every_control_token_of_a_model_stays_text_when_the_world_spells_it(chat: ChatFormat) -> None:
    for token in tokenizer_of(chat).control_texts.values():
        text = f"a{token}b{token}"
        ids_T = chat.encode(text)
        assert not set(ids_T.tolist()) & chat.control_ids
        assert chat.decode(ids_T) == text


@given(any_text)
@settings(max_examples=100, deadline=None)
def test_text_that_spells_nothing_keeps_its_canonical_ids(builtin: ChatFormat, text: str) -> None:
    tokenizer = tokenizer_of(builtin)
    if not tokenizer.is_spelled_in(text):
        assert builtin.encode(text).tolist() == tokenizer._backend.encode(text, add_special_tokens=False).ids


def test_trusted_text_keeps_the_tokens_that_it_spells(builtin: ChatFormat) -> None:
    tokenizer = tokenizer_of(builtin)
    end = tokenizer.token_id("<|im_end|>")
    ids = tokenizer.encode("<|im_end|><|im_<|im_end|>end|>").tolist()
    assert [index for index in ids if index in builtin.control_ids] == [end, end]


@pytest.mark.parametrize(
    "added",
    [
        ["abc", "bc"],  # what a cut leaves of one spells the other
        ["abcd", "cd", "bcd"],
        ["~~", "~~~", "~~~~"],
        ["<a>", "<a><a>", "a><a"],
        ["-\n", "-\n-\n"],
    ],
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_tokens_inside_tokens_stay_text_too(added: list[str], data: st.DataObject) -> None:
    tokenizer = make(*added)
    parts = st.sampled_from([*added, *{char for token in added for char in token}])
    text = data.draw(st.lists(parts, max_size=10).map("".join))
    ids_T = tokenizer.encode_untrusted(text)
    assert not set(ids_T.tolist()) & tokenizer.control_ids
    assert tokenizer.decode(ids_T) == text


@pytest.mark.parametrize("added", [["abc", "bc"], ["~~", "~~~"], ["<a>", "<a><a>", "a><a"]])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_protected_text_completes_no_token_with_what_follows(added: list[str], data: st.DataObject) -> None:
    tokenizer = make(*added)
    parts = st.lists(st.sampled_from([*{char for token in added for char in token}, *added]), max_size=6).map("".join)
    world, literal = data.draw(parts), data.draw(parts)
    cut = free_cut([world, literal])
    alone = tokenizer.encode(literal).tolist()
    together = tokenizer.encode(tokenizer.protect(world, cut) + literal, cut).tolist()
    assert together[len(together) - len(alone) :] == alone
    assert not set(together[: len(together) - len(alone)]) & tokenizer.control_ids


def test_a_control_token_of_one_character_cannot_stay_text() -> None:
    tokenizer = make("#")
    assert tokenizer.encode_untrusted("abc").tolist() == tokenizer.encode("abc").tolist()
    with pytest.raises(ChatError, match="one character"):
        tokenizer.encode_untrusted("a#c")


def test_a_normaliser_that_makes_control_tokens_is_refused() -> None:
    kelvin = make(AddedToken("<K>", normalized=True), normalizer=normalizers.NFC())
    assert len(kelvin.encode("<K>")) == 1
    with pytest.raises(ChatError, match="control tokens of other text"):
        kelvin.encode_untrusted("<\u212a>")
    drops = make(AddedToken("<K>", normalized=True), normalizer=normalizers.Replace(Regex("_"), ""))
    with pytest.raises(ChatError, match="control tokens of other text"):
        drops.encode_untrusted("<_K>")


def test_meant_delimiters_keep_their_ids_and_all_others_lose_them(builtin: ChatFormat) -> None:
    tokenizer = tokenizer_of(builtin)
    ids_T = tokenizer.encode_untrusted("<think>a<|im_end|></think><tool_call>", ["<think>", "</think>", "<unknown>"])
    found = [tokenizer.control_texts[index] for index in ids_T.tolist() if index in tokenizer.control_ids]
    assert found == ["<think>", "</think>"]
    assert tokenizer.decode(ids_T) == "<think>a<|im_end|></think><tool_call>"


# ---- cuts and surrogates


def test_a_cut_is_a_character_that_occurs_nowhere() -> None:
    assert free_cut([]) not in {"", None}
    used = [chr(code) for code in range(0xE000, 0xE010)]
    assert free_cut(["a", "".join(used[:9]), *used[9:]]) not in used


def test_no_free_cut_is_refused() -> None:
    everything = "".join(map(chr, range(0xE000, 0xF900)))
    assert free_cut([everything.replace("\uf123", "")]) == "\uf123"
    with pytest.raises(ChatError, match="private-use"):
        free_cut([everything])


def test_cuts_leave_no_ids(builtin: ChatFormat) -> None:
    tokenizer = tokenizer_of(builtin)
    assert tokenizer.encode("\ue000\ue000", "\ue000").tolist() == []
    assert tokenizer.encode("a\ue000b", "\ue000").tolist() == [*tokenizer.encode("a"), *tokenizer.encode("b")]


@given(st.text(st.characters(), max_size=20))
@settings(deadline=None)
@example("a\ud800b\udfff")
def test_lone_surrogates_are_replaced_one_for_one_and_counted(text: str) -> None:
    replaced, count = replace_surrogates(text)
    assert len(replaced) == len(text)
    assert count == sum(0xD800 <= ord(char) < 0xE000 for char in text)
    assert replaced.encode().decode() == replaced


def test_lone_surrogates_outside_messages_are_refused(builtin: ChatFormat) -> None:
    for encode in (builtin.encode, builtin.encode_turn):
        with pytest.raises(ChatError, match="surrogates"):
            encode("a\ud800")


# ---- what is no tokenizer for us


def test_a_tokenizer_whose_tokens_have_no_bytes_is_refused() -> None:
    with pytest.raises(ChatError, match="no bytes of its own"):
        Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")))


def test_padding_and_truncation_of_a_file_do_not_touch_ids() -> None:
    backend = make("<a>")._backend
    backend.enable_padding(length=50)
    backend.enable_truncation(2)
    assert len(Tokenizer(backend).encode("abcdef")) == 6


def test_an_entry_outside_the_byte_alphabet_stands_for_its_own_text() -> None:
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "two words"]
    backend = tokenizers.Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(backend)
    assert tokenizer.decode([256]) == "two words" == backend.decode([256])


def test_an_added_token_stands_for_its_own_text_even_in_letters_of_the_byte_alphabet() -> None:
    tokenizer = make("<é>")
    (index,) = tokenizer.encode("<é>").tolist()
    assert tokenizer.decode_bytes([index]) == "<é>".encode()


def test_ids_without_an_entry_leave_nothing() -> None:
    backend = make()._backend
    vocabulary = backend.get_vocab() | {"zz": 300}
    gappy = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    gappy.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(gappy)
    assert tokenizer.vocab_size == 301
    assert tokenizer.decode([299, 300, 298]) == "zz"


def test_the_digest_names_rules_and_vocabulary() -> None:
    assert make("<a>").digest == make("<a>").digest
    others = [make("<b>"), make("<a>", "<b>"), make("<a>", normalizer=normalizers.NFC())]
    assert len({make("<a>").digest, *(tokenizer.digest for tokenizer in others)}) == 4


# ---- vocabularies of SentencePiece's kind


def sentencepiece_like(*, prepend: bool = False) -> tokenizers.Tokenizer:
    """Make a vocabulary as Gemma's: blanks are U+2581, rare characters bytes, and runs of line breaks added tokens."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdeghot.\n<>/|", "\u2581", "go", "\u2581to"]
    merges = [("g", "o"), ("t", "o"), ("\u2581", "to")]
    vocab = {piece: index for index, piece in enumerate([*pieces, "to"])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    blanks = tokenizers.normalizers.Replace(" ", "\u2581")
    first = [tokenizers.normalizers.Prepend("\u2581")] if prepend else []
    backend.normalizer = tokenizers.normalizers.Sequence([*first, blanks])
    parts = [tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    backend.decoder = tokenizers.decoders.Sequence(parts)
    backend.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ("<end>", "\n\n", "\n\n\n")])
    return backend


SENTENCEPIECE = Tokenizer(sentencepiece_like())


@given(st.lists(st.text(max_size=8) | st.sampled_from(["<end>", "\n\n", "\n\n\n", " ", "<end", "go to"]), max_size=6))
def test_a_vocabulary_with_byte_fallback_gives_every_text_back_and_no_control_token(parts: list[str]) -> None:
    text = "".join(parts)
    ids_T = SENTENCEPIECE.encode_untrusted(text)
    # U+2581 is how such a vocabulary writes a blank: a world's own comes back as one, in every engine.
    assert SENTENCEPIECE.decode(ids_T) == text.replace("\u2581", " ")
    assert not SENTENCEPIECE.control_ids & set(ids_T.tolist())


def test_added_runs_of_blanks_are_no_control_tokens() -> None:
    ids_T = SENTENCEPIECE.encode("go\n\n\nto<end>")
    assert [SENTENCEPIECE.decode([index]) for index in ids_T.tolist()] == ["go", "\n\n\n", "to", "<end>"]
    assert [SENTENCEPIECE.decode([index]) for index in ids_T.tolist() if index in SENTENCEPIECE.control_ids] == [
        "<end>"
    ]


def test_a_vocabulary_that_prepends_a_blank_is_refused() -> None:
    with pytest.raises(ChatError, match="no bytes of its own"):
        Tokenizer(sentencepiece_like(prepend=True))
