"""Where a turn ends by its text: at the token that completes a stop string, which stays whole."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.detokenize import Detokenizer
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["StopWatch", "end_doubt", "stop_end", "text_end"]


class StopWatch:
    """Tell which token of a turn completes a stop string.

    A string counts once all its characters are whole; it may begin in any token, and the token that completes it may
    say more. The work for an id does not depend on how many came before.

    Args:
        chat: The format of the ids.
        stop: The stop strings.
    """

    def __init__(self, chat: ChatFormat, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._detokenizer = Detokenizer(chat)
        self._longest = max(map(len, self._stop), default=0)
        self._tail = ""

    def push(self, index: int) -> bool:
        """Take the next id; true where it completes a stop string."""
        if not self._stop:
            return False
        text = self._tail + self._detokenizer.push([index])
        self._tail = text[max(0, len(text) - self._longest + 1) :]
        return any(one in text for one in self._stop)


def stop_end(chat: ChatFormat, ids_T: ArrayLike, stop: Sequence[str]) -> int | None:
    """Return how many ids a turn needs until its text contains a stop string; None where it never does.

    Args:
        chat: The format of the ids.
        ids_T: int [T], the turn.
        stop: The stop strings.
    """
    ids_T = as_ids(ids_T)
    if not stop or text_end(chat.decode(ids_T), stop) is None:
        return None
    watch = StopWatch(chat, stop)
    return next(place for place, index in enumerate(ids_T.tolist(), start=1) if watch.push(index))


def end_doubt(chat: ChatFormat, ids_T: Ids, stop: Sequence[str], *, stopped: bool) -> str:
    """Return why a turn's ids do not end where an engine should have ended it; empty where they do.

    Args:
        chat: Knows the stop tokens.
        ids_T: int32 [T], the turn as the engine returned it.
        stop: The stop strings that were asked for.
        stopped: The engine says that the turn stopped, and reached no limit.
    """
    end = stop_end(chat, ids_T, stop)
    if end is not None and end < len(ids_T):
        return "it goes on behind a stop string"
    if not stopped or end is not None or (len(ids_T) and int(ids_T[-1]) in chat.stop_ids):
        return ""
    return f"it stopped, and its last id is no stop token{' and completes no stop string' if stop else ''}"


def text_end(text: str, stop: Sequence[str]) -> int | None:
    """Return the end of the stop string that a text completes first; None where it has none."""
    ends = [text.find(one) + len(one) for one in stop if one in text]
    return min(ends, default=None)
