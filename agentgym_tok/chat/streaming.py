"""A turn in pieces while it is drawn: text, reasoning and calls, as soon as they are certain.

Together the pieces say what `ChatFormat.parse` says of the whole turn, and none is ever taken back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agentgym_tok.chat.deltas import Said, TurnDelta
from agentgym_tok.chat.dialects.dialect import Early
from agentgym_tok.chat.dialects.early_calls import ArrivingBody
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.format import ChatFormat
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import AssistantMessage

__all__ = ["TurnStream", "opens_reasoning"]

_NEAR = 32  # ids; an opener and the blanks behind it are fewer


class TurnStream:
    """Tell a turn while its ids arrive.

    Joined, the text is `content`, the reasoning `reasoning`; each call that has a name begins, in order, and each call
    ends with its status; the arguments of a call that ends `ok` are its arguments as JSON. A call whose JSON breaks
    behind its name has begun too, although `parse` finds no name in it. The work for an id does not depend on how many
    came before; the end reads the turn once more, as `parse` does.

    Waiting are: half a character; what may begin a delimiter; blanks that could be the last; a stop token, which may be
    the last; the text at the head of a turn while a closer could make it reasoning (`opened=False` says that none can);
    a delimiter that other tokens spell; and what a dialect lets nobody tell before the end (see `docs/design/chat.md`).

    Args:
        chat: The format of the ids.
        tools: As for `parse`.
        opened: As for `parse`.

    Attributes:
        message: The turn as `parse` reads it; None before the end.
    """

    def __init__(
        self, chat: ChatFormat, tools: Sequence[Mapping[str, Any]] | None = None, *, opened: bool | None = None
    ) -> None:
        reader = chat._reader
        self._chat = chat
        self._tools = tools
        self._opened = reader.opened if opened is None else opened
        self._stop_ids = frozenset(chat.stop_ids)
        self._said = Said()
        self._early: Early | None = reader.dialect.early(chat._tokenizer, Tools(tools), self._said, self._opened)
        self._ids: list[int] = []
        self._held: int | None = None
        self.message: AssistantMessage | None = None

    def __del__(self) -> None:
        if (early := getattr(self, "_early", None)) is not None:
            _take_apart(early)

    def push(self, ids_T: ArrayLike) -> list[TurnDelta]:
        """Take the next ids and return what is certain now.

        Args:
            ids_T: int [T], any number of ids.

        Raises:
            InvalidIds: An id is outside the vocabulary; the stream is as before.
            ChatError: The turn has ended.
        """
        ids = self._checked(ids_T)
        if self.message is not None:
            raise ChatError("the turn has ended", where="TurnStream.push", got=f"{len(ids)} more ids")
        self._ids += ids
        if self._early is not None:
            for index in ids:
                if self._held is not None:
                    self._early.push(self._held)
                self._held = index if index in self._stop_ids else None
                if self._held is None:
                    self._early.push(index)
        return self._said.take()

    def _checked(self, ids_T: ArrayLike) -> list[int]:
        if isinstance(ids_T, np.ndarray) and ids_T.dtype == np.int32 and ids_T.ndim == 1:
            ids: list[int] = ids_T.tolist()
            # One id after the other is a stream's usual way; numpy's own look at it takes longer than all the rest.
            if not ids or (min(ids) >= 0 and max(ids) < self._chat.vocab_size):
                return ids
        checked: list[int] = as_ids(ids_T, vocab_size=self._chat.vocab_size).tolist()
        return checked

    def end(self) -> list[TurnDelta]:
        """End the turn and return what was held back; afterwards there is nothing more."""
        if self.message is None:
            if self._early is not None:
                self._early.finish(self._held)
            self.message = self._chat.parse(as_ids(self._ids), self._tools, opened=self._opened)
            self._said.close(self.message)
        return self._said.take()


def _take_apart(reader: object) -> None:
    """Empty a dialect's reader: its next step is a method of its own, so that else it would wait for the collector."""
    parts = list(vars(reader).values())
    vars(reader).clear()
    for part in parts:
        if isinstance(part, ArrivingBody):
            _take_apart(part)


def opens_reasoning(chat: ChatFormat, prompt_T: ArrayLike) -> bool:
    """Tell whether a prompt ends inside reasoning, for `opened`.

    Args:
        chat: The format of the ids.
        prompt_T: int [P], the context that ends in the generation prompt.
    """
    text = chat.decode(np.asarray(prompt_T)[-_NEAR:]).rstrip()
    return any(text.endswith(opener) for opener, _ in chat.reasoning_pairs)
