"""Contexts to ask with: some that differ, some that leave much open, some that end, and other ids of the same text."""

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.tokens import Ids, as_ids

__all__ = ["closing", "conversations", "open_ended", "split_differently"]

_THINGS = (
    *("a mug on a shelf", "the sea at night", "a train to Oslo", "how bread is made", "an old red bicycle"),
    *("the number 1234", "a cat in a library", "rain in October", "a recipe with beans", "two keys and one door"),
    *("a letter to a friend", "the third planet"),
)
_WORDS = (
    *("stone", "green", "seven", "under", "paper", "cloud", "walk", "music"),
    *("bridge", "salt", "window", "lamp", "river", "glass", "ten", "early"),
)
_MOST_SPLITS = 8


def conversations(chat: ChatFormat) -> list[Ids]:
    """Return twelve contexts whose answers differ."""
    return [_prompt(chat, f"Tell me something about {thing}.") for thing in _THINGS]


def open_ended(chat: ChatFormat) -> list[Ids]:
    """Return contexts after which nearly anything may come."""
    shuffled = np.random.default_rng(0).permutation(_WORDS)
    words = " ".join(shuffled) + " "
    return [
        _prompt(chat, "Write one random word."),
        _joined(_prompt(chat, "Name any thing in the world."), chat.encode("The")),
        chat.encode(words),
        _joined(_prompt(chat, "Write random words."), chat.encode(words)),
    ]


def closing(chat: ChatFormat) -> list[Ids]:
    """Return contexts in which the assistant has said all that it was asked for."""
    return [
        _joined(_prompt(chat, f"Say only the word {word!r}, without quotes."), chat.encode(word))
        for word in ("yes", "ok", "done", "Paris")
    ]


def split_differently(chat: ChatFormat, ids_T: Ids) -> Ids | None:
    """Return other ids of the same text, which the tokenizer itself would not choose; None where there are none.

    The last tokens that are the text of two others one after the other are replaced by those.
    """
    every = chat.token_bytes(np.arange(chat.vocab_size, dtype=np.int32))
    known = {text: index for index, text in enumerate(every) if index not in chat.control_ids}
    parts: list[list[int]] = [[index] for index in ids_T.tolist()]
    left = _MOST_SPLITS
    for place in range(len(parts) - 1, -1, -1):
        index = parts[place][0]
        whole = b"" if index in chat.control_ids else every[index]
        cut = next((cut for cut in range(1, len(whole)) if whole[:cut] in known and whole[cut:] in known), None)
        if cut is not None and left:
            parts[place] = [known[whole[:cut]], known[whole[cut:]]]
            left -= 1
    split_T = as_ids([index for part in parts for index in part])
    text = chat.decode(split_T)
    same_text = text == chat.decode(ids_T)
    return split_T if same_text and chat.tokenize(text).tolist() != split_T.tolist() else None


def _prompt(chat: ChatFormat, text: str) -> Ids:
    return chat.open([{"role": "user", "content": text}]).ids


def _joined(*parts: Ids) -> Ids:
    return as_ids(np.concatenate(parts))
