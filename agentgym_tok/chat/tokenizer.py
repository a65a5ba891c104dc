"""Text to ids and back, so that only what is meant as a control token becomes one."""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import tokenizers
from numpy.typing import ArrayLike

from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["Tokenizer"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")

_CUTS = range(0xE000, 0xF900)
"""Private-use characters; one that occurs nowhere in a rendering marks where its text is cut."""


class Tokenizer:
    """Wrap a fast tokenizer of the `tokenizers` library.

    An added token is every entry that the tokenizer finds in raw text before its own rules: `<|im_end|>`, but also
    `<tool_call>`, whether or not it is flagged special. All count as control tokens here, but for runs of blanks.

    Args:
        backend: The tokenizer; padding and truncation are switched off.

    Attributes:
        digest: sha256 of the tokenizer's rules and vocabulary.

    Raises:
        ChatError: A token of this tokenizer alone has no bytes.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        rules = json.loads(backend.to_str())
        self._of_text = _bytes_of_entries(rules)
        self.digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()
        tokens = backend.get_added_tokens_decoder()
        # Runs of blanks that a vocabulary adds (Gemma) structure nothing: a world may say them.
        added = {index: token.content for index, token in tokens.items() if token.content.strip(" \n\t\u2581")}
        self.control_ids: frozenset[int] = frozenset(added)
        self.control_texts: dict[int, str] = added
        self.vocab_size: int = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        # Longest first, so that the pattern finds what the tokenizer's own leftmost-longest search finds.
        spelled = sorted(added.values(), key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, spelled)) or "(?!)")
        self._prefixes = frozenset(text[:end] for text in spelled for end in range(1, len(text)))
        self._suffixes = frozenset(text[start:] for text in spelled for start in range(1, len(text)))
        self._longest = max(map(len, spelled), default=0)

    def token_id(self, text: str) -> int | None:
        """Return the id of a vocabulary entry, or None."""
        found: int | None = self._backend.token_to_id(text)
        return found

    def is_spelled_in(self, text: str) -> bool:
        """Tell whether the text spells a control token, or ends in the beginning of one."""
        return self._spelled.search(text) is not None or self.ends_in_prefix(text)

    def ends_in_prefix(self, text: str) -> bool:
        """Tell whether the text ends in the beginning of a control token, which what follows could complete."""
        return any(text[-size:] in self._prefixes for size in range(1, min(self._longest, len(text) + 1)))

    def goes_on(self, text: str) -> bool:
        """Tell whether the text could go on with a control token that began before it."""
        if any(text[:size] in self._suffixes for size in range(1, min(self._longest, len(text) + 1))):
            return True
        return bool(text) and any(text in token[1:-1] for token in self.control_texts.values())

    def first_control(self, text: str) -> str | None:
        """Return the control token that the text begins with, or None."""
        found = self._spelled.match(text)
        return found[0] if found and found[0] else None

    def last_control(self, text: str) -> tuple[str, int] | None:
        """Return the last control token in the text and its place, or None."""
        found = list(self._spelled.finditer(text))
        return (found[-1][0], found[-1].start()) if found else None

    def protect(self, text: str, cut: str) -> str:
        """Insert the cut inside every spelled control token, and after a beginning of one at the end.

        Raises:
            ChatError: A control token has a single character, so that it cannot be cut.
        """

        def halve(match: re.Match[str]) -> str:
            if len(match[0]) == 1:
                raise ChatError("a control token of one character cannot stay text", where=text[:80], got=match[0])
            return match[0][0] + cut + match[0][1:]

        while self._spelled.search(text):  # what a cut leaves of one token may spell a shorter one
            text = self._spelled.sub(halve, text)
        return text + cut if self.ends_in_prefix(text) else text

    def encode(self, text: str, cut: str = "") -> Ids:
        """Encode a rendering whole, as the template's own tokenizer would.

        Args:
            text: The text; control tokens spelled in it become control ids.
            cut: A character at which the text is cut into pieces that are encoded apart; it leaves no ids.

        Returns:
            int32 [T].

        Raises:
            ChatError: The ids hold another number of control tokens than the text spells.
        """
        pieces = text.split(cut) if cut else [text]
        ids: list[int] = []
        meant = 0
        for piece in pieces:
            if piece:
                ids += self._backend.encode(piece, add_special_tokens=False).ids
                meant += len(self._spelled.findall(piece))
        control_ids = self.control_ids
        found = sum(1 for index in ids if index in control_ids)
        if found != meant:
            # A normaliser can turn other characters into a control token; then nothing can be promised.
            raise ChatError(
                "the tokenizer makes control tokens of other text", where=text[:80], got=found, expected=meant
            )
        return as_ids(ids)

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> Ids:
        """Encode text as the tokenizer itself does, with nothing checked and, if asked, with what it adds around."""
        return as_ids(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_untrusted(self, text: str, meant: Collection[str] = ()) -> Ids:
        """Encode text that never becomes a control token.

        Args:
            text: Any text; lone surrogates must be replaced before.
            meant: Control tokens that the text may hold all the same.
        """
        if not self.is_spelled_in(text):
            return self.encode(text)
        cut = free_cut([text])
        meant = [token for token in meant if token in self.control_texts.values()]
        parts = re.split(f"({'|'.join(map(re.escape, meant))})", text) if meant else [text]
        return self.encode("".join([part if part in meant else self.protect(part, cut) for part in parts]), cut)

    def decode(self, ids_T: ArrayLike) -> str:
        """Return the text for people, parsers and worlds; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids_T).decode("utf-8", "replace")

    def decode_bytes(self, ids_T: ArrayLike) -> bytes:
        """Return the bytes that the ids stand for, control tokens spelled out; ids without a token leave nothing.

        Raises:
            InvalidIds: An id is outside the vocabulary.
        """
        table = self.token_bytes
        return b"".join([table[index] for index in as_ids(ids_T, vocab_size=self.vocab_size).tolist()])

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes of every id."""
        table = [b""] * self.vocab_size
        for text, index in self._backend.get_vocab(with_added_tokens=True).items():
            table[index] = text.encode() if index in self.control_ids else self._of_text(text)
        return table


def free_cut(texts: Iterable[str]) -> str:
    """Return a private-use character that occurs in none of the texts.

    Raises:
        ChatError: Somebody uses them all.
    """
    together = "".join(texts)
    for code in _CUTS:
        if chr(code) not in together:
            return chr(code)
    raise ChatError("the text uses every private-use character that could mark a cut", where="message content")


def replace_surrogates(text: str) -> tuple[str, int]:
    """Return the text with U+FFFD for every lone surrogate, and their number."""
    if text.isascii():
        return text, 0
    return _SURROGATE.subn("\ufffd", text)


def _bytes_of_entries(rules: Mapping[str, Any]) -> Callable[[str], bytes]:
    """Return what gives an entry's bytes, by the tokenizer's decoder.

    Raises:
        ChatError: A token alone has no bytes there, such as where the first blank of a text is taken off.
    """
    decoder = rules.get("decoder") or {}
    kinds = [part.get("type") for part in decoder.get("decoders", [decoder])]
    if kinds == ["ByteLevel"]:
        return _byte_level
    normalizer = json.dumps(rules.get("normalizer"))
    if kinds == ["Replace", "ByteFallback", "Fuse"] and "Prepend" not in normalizer:
        return _byte_fallback
    raise ChatError(
        "a token of this tokenizer has no bytes of its own",
        where="tokenizer.json",
        got=f"decoder {', '.join(map(str, kinds))}",
        expected="ByteLevel, or Replace, ByteFallback, Fuse without a prepended blank",
    )


def _byte_level(text: str) -> bytes:
    """Return the bytes of a byte-level entry (GPT-2); one that is no text of the alphabet stands for itself."""
    of_char = _byte_of_char()
    return bytes(of_char[char] for char in text) if all(char in of_char for char in text) else text.encode()


def _byte_fallback(text: str) -> bytes:
    """Return the bytes of an entry of SentencePiece's kind: `<0xE2>` is a byte, and U+2581 a blank."""
    byte = _BYTE.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace("\u2581", " ").encode()


@functools.cache
def _byte_of_char() -> dict[str, int]:
    """Return the alphabet of byte-level BPE (GPT-2): printable bytes stand for themselves, others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(0x100 + place): byte for place, byte in enumerate(others)}
