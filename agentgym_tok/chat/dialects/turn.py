"""A turn as bytes, whole or while it arrives, with the way back from a place in its text to its tokens."""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["ArrivingTurn", "Event", "Found", "Mark", "TurnText", "any_of"]


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
        opened: Whether the prompt ends inside a reasoning block; None where that is not known.

    Attributes:
        ids: The ids, as a list.
        raw: The bytes of all tokens.
        end: Where the stop token begins; the length of `raw` without one.
        closed: The turn ends in a stop token.
    """

    __slots__ = ("_control_ids", "_ends", "_pieces", "_spans", "_tokenizer", "closed", "end", "ids", "opened", "raw")

    def __init__(
        self, tokenizer: Tokenizer, ids_T: Ids, stop_ids: Collection[int], *, opened: bool | None = None
    ) -> None:
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


class Found(NamedTuple):
    """Hold a delimiter of a turn that arrives.

    Args:
        mark: The delimiter.
        quoted: It is spelled by other tokens, although it has one of its own, which the turn never draws.
    """

    mark: Mark
    quoted: bool


Event: TypeAlias = bytes | Found
"""What comes next in a turn: some text, or a delimiter."""


@dataclass(frozen=True, slots=True)
class _Delimiters:
    """Hold what is looked for in every turn of a dialect.

    Args:
        pattern: Matches each delimiter whole.
        first: Matches their first bytes.
        beginnings: All that a delimiter may begin with.
        longest: Bytes of the longest one.
        with_token: Those that have a token of their own.
    """

    pattern: re.Pattern[bytes]
    first: re.Pattern[bytes]
    beginnings: frozenset[bytes]
    longest: int
    with_token: frozenset[bytes]

    def beginning(self, text: bytes, place: int) -> int:
        """Return where the beginning of a delimiter stands at the end of a text, from a place on."""
        for match in self.first.finditer(text, max(place, len(text) - self.longest + 1)):
            if text[match.start() :] in self.beginnings:
                return match.start()
        return len(text)


@lru_cache(maxsize=32)
def _delimiters(tokenizer: Tokenizer, delimiters: tuple[str, ...]) -> _Delimiters:
    """Return what is looked for; kept, since a server makes a reader for every turn."""
    texts = [text.encode() for text in delimiters]
    return _Delimiters(
        any_of(*delimiters),
        re.compile(b"[" + re.escape(bytes({text[0] for text in texts})) + b"]"),
        frozenset(text[:size] for text in texts for size in range(1, len(text))),
        max(map(len, texts)),
        frozenset(text for text in texts if tokenizer.token_id(text.decode()) in tokenizer.control_ids),
    )


class ArrivingTurn:
    """Tell the delimiters of a turn while its ids arrive, and the text between them, as `TurnText.marks` would.

    What may be the beginning of a delimiter waits. So does everything from a delimiter on that is spelled, although it
    has a token of its own, until that token makes it text or the turn ends without one. The work for an id does not
    depend on how many came before.

    Args:
        tokenizer: Knows the bytes of each id.
        delimiters: The delimiters; none is a part of another.
        opened: As in `TurnText`.
        together: They make sense only together, as in `TurnText.marks`.
    """

    def __init__(
        self, tokenizer: Tokenizer, delimiters: Sequence[str], *, opened: bool | None = None, together: bool = False
    ) -> None:
        self.opened = opened
        self._tokenizer = tokenizer
        self._together = together
        self._marks = _delimiters(tokenizer, tuple(delimiters))
        self._drawn: set[bytes] = set()
        self._ids: list[int] = []
        self._ends: list[int] = []
        self._tail = b""
        self._waiting: deque[Event] = deque()
        self._bare = False

    def push(self, index: int) -> list[Event]:
        """Take the next id and return what is certain now."""
        piece = self._tokenizer.token_bytes[index]
        start = self._ends[-1] if self._ends else 0
        self._ids.append(index)
        self._ends.append(start + len(piece))
        text = self._tail + piece
        if self._bare:
            self._tail = b""
            self._waiting.append(text)
            return self._certain(ended=True)
        offset, place = start - len(self._tail), 0
        control = index in self._tokenizer.control_ids
        marks = self._marks
        for match in marks.pattern.finditer(text):
            mark = Mark(offset + match.start(), offset + match.end(), match[0])
            drawn = control and mark[:2] == (start, start + len(piece))
            if drawn:
                self._drawn.add(mark.text)
            self._waiting += [text[place : match.start()], Found(mark, not drawn and mark.text in marks.with_token)]
            place = match.end()
        until = marks.beginning(text, place)
        self._waiting.append(text[place:until])
        self._tail = text[until:]
        return self._certain()

    def finish(self) -> list[Event]:
        """Return what is left where no more ids come."""
        self._waiting.append(self._tail)
        self._tail = b""
        return self._certain(ended=True)

    def forget_delimiters(self) -> None:
        """Look for no more delimiters; what waits comes with the next id."""
        self._bare = True

    def is_delimiter(self, index: int) -> bool:
        """Tell whether an id would be a delimiter, and nothing else."""
        return not self._bare and self._marks.pattern.fullmatch(self._tokenizer.token_bytes[index]) is not None

    def between(self, start: int, end: int) -> tuple[TurnText, int]:
        """Return the tokens that hold some bytes, as a turn of their own, and the place where it begins."""
        first, last = bisect_right(self._ends, start), bisect_left(self._ends, end) + 1
        turn = TurnText(self._tokenizer, as_ids(self._ids[first:last]), ())
        return turn, self._ends[first - 1] if first else 0

    def _certain(self, *, ended: bool = False) -> list[Event]:
        certain: list[Event] = []
        while self._waiting:
            event = self._waiting[0]
            if isinstance(event, Found) and event.quoted:
                if event.mark.text in self._drawn or (self._together and self._drawn):
                    event = event.mark.text
                elif not ended:
                    break
            self._waiting.popleft()
            if event:
                certain.append(event)
        return certain


def any_of(*delimiters: str) -> re.Pattern[bytes]:
    """Return the pattern that finds each of the delimiters, the longest one at a place."""
    longest_first = sorted(delimiters, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)).encode())
