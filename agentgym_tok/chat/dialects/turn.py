"""A turn as bytes, with the way back from a place in its text to its tokens."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import accumulate
from typing import NamedTuple

from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.tokens import Ids

__all__ = ["Mark", "TurnText", "any_of"]


class Mark(NamedTuple):
    """Hold one delimiter in a turn.

    Args:
        start: Its first byte.
        end: The byte behind it.
        text: The delimiter.
    """

    start: int
    end: int
    text: bytes


class TurnText:
    """Hold the bytes of a turn; only they count, not where the policy cut them into tokens.

    Args:
        tokenizer: Knows the bytes of each id.
        ids_T: int32 [T], with or without a stop token, all inside the vocabulary.
        stop_ids: Ids that end a turn.
        opened: The prompt ends inside a reasoning block.

    Attributes:
        ids: The ids, as a list.
        raw: The bytes of all tokens.
        end: Where the stop token begins; the length of `raw` without one.
        closed: The turn ends in a stop token.
    """

    __slots__ = ("_control_ids", "_ends", "_pieces", "_spans", "_tokenizer", "closed", "end", "ids", "opened", "raw")

    def __init__(self, tokenizer: Tokenizer, ids_T: Ids, stop_ids: Collection[int], *, opened: bool = False) -> None:
        table = tokenizer.token_bytes
        self._tokenizer = tokenizer
        self._control_ids = tokenizer.control_ids
        self.ids: list[int] = ids_T.tolist()
        self._pieces = [table[index] for index in self.ids]
        self._ends: list[int] | None = None
        self._spans: set[tuple[int, int]] | None = None
        self.raw = b"".join(self._pieces)
        self.closed = bool(self.ids) and self.ids[-1] in stop_ids
        self.end = len(self.raw) - len(self._pieces[-1]) if self.closed else len(self.raw)
        self.opened = opened

    def marks(self, delimiters: re.Pattern[bytes], *, together: bool = False) -> list[Mark]:
        """Return the delimiters of the turn, in order.

        A delimiter that has a token of its own is read by that token where the turn holds one, and what spells it in
        other tokens is then text: an argument may quote `</tool_call>`. Where the turn holds none, the spelling counts,
        since a policy may draw any tokens.

        Args:
            delimiters: Matches each of them whole.
            together: They make sense only together: where the turn holds the token of one, none that has a token counts
                as spelled.
        """
        found = [Mark(match.start(), match.end(), match[0]) for match in delimiters.finditer(self.raw)]
        if not found:
            return found
        drawn = self._control_spans()
        own = {mark.text for mark in found if mark[:2] in drawn}
        if own and together:
            own = {text for text in {mark.text for mark in found} if self._has_token(text)}
        return [mark for mark in found if mark.text not in own or mark[:2] in drawn] if own else found

    def is_quoted(self, mark: Mark) -> bool:
        """Tell whether a delimiter is spelled by other tokens, although it has one of its own."""
        return self._has_token(mark.text) and mark[:2] not in self._control_spans()

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """Return the half-open range of the tokens that hold the bytes from `start` to `end`."""
        ends = self._token_ends()
        return bisect_right(ends, start), bisect_left(ends, end) + 1

    def text(self, start: int, end: int) -> str:
        """Return the text of some bytes; those that are no UTF-8 become U+FFFD."""
        return self.raw[start:end].decode("utf-8", "replace")

    def _has_token(self, text: bytes) -> bool:
        return self._tokenizer.token_id(text.decode()) in self._control_ids

    def _token_ends(self) -> list[int]:
        if self._ends is None:
            self._ends = list(accumulate(map(len, self._pieces)))
        return self._ends

    def _control_spans(self) -> set[tuple[int, int]]:
        if self._spans is None:
            control_ids = self._control_ids
            tokens = zip(self.ids, self._pieces, self._token_ends(), strict=True)
            self._spans = {(end - len(piece), end) for index, piece, end in tokens if index in control_ids}
        return self._spans


def any_of(*delimiters: str) -> re.Pattern[bytes]:
    """Return the pattern that finds each of the delimiters, the longest one at a place."""
    longest_first = sorted(delimiters, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)).encode())
