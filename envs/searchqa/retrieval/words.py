"""Which words of a text a lexical index knows."""

import re

__all__ = ["words"]

# Lucene's English stop words.
_STOP_LIST = (
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with"
)
_STOP_WORDS = frozenset(_STOP_LIST.split())
_WORD = re.compile(r"\w\w+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, in order and with repeats, without stop words and single letters.

    Words are not stemmed: on MuSiQue and HotpotQA that finds as much, and needs no stemmer.
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
