"""Porter's stemmer with its author's later corrections, as Lucene's `PorterStemFilter` has it."""

import re

__all__ = ["stem"]

_VOWELS = frozenset("aeiou")
_PLURALS = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
# Per step the suffixes, longest first, and what stands in their place. `bli` and `logi` are the author's corrections.
_LONG_SUFFIXES = (
    *(("ational", "ate"), ("ization", "ize"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    *(("tional", "tion"), ("biliti", "ble"), ("entli", "ent"), ("ousli", "ous"), ("ation", "ate"), ("alism", "al")),
    *(("aliti", "al"), ("iviti", "ive"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("alli", "al")),
    *(("ator", "ate"), ("logi", "log"), ("bli", "ble"), ("eli", "e")),
)
_SHORT_SUFFIXES = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ness", ""), ("ful", "")),
)
_LAST_SUFFIXES = tuple(
    "ement ance ence able ible ment ant ent ion ism ate iti ous ive ize al er ic ou".split()  # noqa: SIM905  a table
)
_DOUBLED = re.compile(r"(.)\1\Z", re.DOTALL)


def stem(word: str) -> str:
    """Return the stem of a word.

    Source: M. F. Porter, "An algorithm for suffix stripping", 1980, and the departures that his own later programs
    make: words of one or two letters stay, `bli` becomes `ble`, and `logi` becomes `log`.

    Args:
        word: In lower case; what is neither a vowel nor y counts as a consonant, digits and signs too.
    """
    if len(word) <= 2:
        return word
    word = _first(_replace(word, _PLURALS, least=-1))
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(_replace(word, _LONG_SUFFIXES, least=0), _SHORT_SUFFIXES, least=0)
    return _tidy(_drop(word))


def _shape(word: str) -> str:
    """Return a word as its vowels (`v`) and consonants (`c`); y is a vowel after a consonant."""
    shape, before = [], "v"
    for letter in word:
        before = "v" if letter in _VOWELS or (letter == "y" and before == "c") else "c"
        shape.append(before)
    return "".join(shape)


def _measure(word: str) -> int:
    """Return how often a consonant follows a vowel."""
    return _shape(word).count("vc")


def _is_short(word: str) -> bool:
    """Say whether a word ends consonant, vowel, consonant, and the last is none of w, x, y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _replace(word: str, suffixes: tuple[tuple[str, str], ...], *, least: int) -> str:
    """Replace the first suffix that fits, where enough stands before it; one that fits ends the search either way."""
    for suffix, other in suffixes:
        if word.endswith(suffix):
            before = word[: -len(suffix)]
            return before + other if _measure(before) > least else word
    return word


def _first(word: str) -> str:
    """Take off `ed` and `ing`, and mend what is left."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            before = word[: -len(suffix)]
            return _mend(before) if "v" in _shape(before) else word
    return word


def _mend(word: str) -> str:
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _DOUBLED.search(word) and _shape(word).endswith("c"):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _is_short(word) else word


def _drop(word: str) -> str:
    for suffix in _LAST_SUFFIXES:
        if word.endswith(suffix):
            before = word[: -len(suffix)]
            fits = _measure(before) > 1 and (suffix != "ion" or before.endswith(("s", "t")))
            return before if fits else word
    return word


def _tidy(word: str) -> str:
    """Take off a last e, and one of two last l."""
    if word.endswith("e"):
        before = word[:-1]
        measure = _measure(before)
        if measure > 1 or (measure == 1 and not _is_short(before)):
            word = before
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
