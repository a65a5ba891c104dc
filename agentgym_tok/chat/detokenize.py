"""Ids to text while they are drawn: every piece is whole characters, and together they are the decoded turn."""

import codecs
import re
from collections.abc import Sequence

from numpy.typing import ArrayLike

from agentgym_tok.chat.format import ChatFormat

__all__ = ["Detokenizer"]


class Detokenizer:
    """Turn a stream of ids into a stream of text.

    A token may hold half a character. Its bytes wait until the character is whole, or can no longer become one and is
    U+FFFD. The work for an id does not depend on how many came before.

    Args:
        chat: The format of the ids.
        hold: Stop strings. Text that may be the beginning of one waits until it is one, or cannot become one; so each
            stands whole in one piece.
    """

    def __init__(self, chat: ChatFormat, hold: Sequence[str] = ()) -> None:
        self._chat = chat
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole = re.compile("|".join(map(re.escape, filter(None, hold))) or "(?!)")
        self._beginnings = frozenset(stop[:size] for stop in hold for size in range(1, len(stop)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = ""

    def push(self, ids_T: ArrayLike) -> str:
        """Take the next ids and return the text that is certain now.

        Args:
            ids_T: int [T], any number of ids.

        Raises:
            InvalidIds: An id is outside the vocabulary; the stream is as before.
        """
        raw = self._chat._tokenizer.decode_bytes(ids_T)
        text = self._held + self._decoder.decode(raw)
        behind = max((match.end() for match in self._whole.finditer(text)), default=0)
        sizes = range(min(self._longest, len(text) - behind), 0, -1)
        size = next((size for size in sizes if text[-size:] in self._beginnings), 0)
        self._held = text[len(text) - size :]
        return text[: len(text) - size]

    def finish(self) -> str:
        """End the stream and return what was held back; the next `push` begins a new one."""
        text = self._held + self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._held = ""
        return text
