"""Words to index terms, as Anserini's default English analyzer makes them; no Java."""

from functools import lru_cache

import regex

from agentgym_tok.envs.webshop.lookup.porter import stem

__all__ = ["STOP_WORDS", "analyze"]

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such
that the their then there these they this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's English stop words."""

# Unicode 12's Extended_Pictographic characters, which Lucene takes for emoji; later versions of Unicode have fewer.
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705"
    "\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767"
    "\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a"
    "\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f"
    "\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001fffd"
)
_WORD_BREAK = regex.compile(r"(?wV1)\b")  # Unicode's own default word boundaries (UAX #29)
_SAYS_SOMETHING = regex.compile(rf"[\p{{L}}\p{{N}}{_EMOJI}]")
_POSSESSIVE = regex.compile(r"['\u2019\uff07][sS]\Z")
_LONGEST = 255  # Lucene cuts longer words into pieces


def analyze(text: str) -> list[str]:
    """Return the terms of a text, in order and with repeats.

    Source: Anserini's `DefaultEnglishAnalyzer`: Lucene's StandardTokenizer, then possessives, lower case, stop words
    and Porter's stemmer.
    """
    # A blank always stands between words, so that pieces can be analysed, and remembered, one by one.
    return [term for piece in text.split(" ") for term in _terms(piece)]


@lru_cache(maxsize=1 << 16)
def _terms(piece: str) -> tuple[str, ...]:
    words = (word for word in _WORD_BREAK.split(piece) if _SAYS_SOMETHING.search(word))
    cut = (word[start : start + _LONGEST] for word in words for start in range(0, len(word), _LONGEST))
    plain = (_POSSESSIVE.sub("", word).lower() for word in cut)
    return tuple(stem(word) for word in plain if word and word not in STOP_WORDS)
