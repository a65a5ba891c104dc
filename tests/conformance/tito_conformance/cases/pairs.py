"""Texts that sampled pieces and an encoder cut differently, measured on the vocabularies of Qwen2.5 and Qwen3."""

from tito_conformance.cases.shapes import said
from tito_conformance.script import Case

__all__ = ["JOINS", "PAIRS", "REAL_IDS"]

# What is sampled, piece by piece, and the ids of both vocabularies.
_PAIRS: tuple[tuple[str, tuple[str, ...], list[int]], ...] = (
    ("hello", ("h", "ello"), [71, 4791]),
    ("search with a bracket", ("s", "earch", "["), [82, 2902, 58]),
    ("a space and Action", (" ", "Action"), [220, 2512]),
    ("Thought with a colon", ("T", "h", "ought", ":"), [51, 71, 2450, 25]),
    ("two newlines", ("\n", "\n"), [198, 198]),
    ("a stop token spelled out", ("<", "|", "im", "_end", "|", ">"), [27, 91, 318, 6213, 91, 29]),
    ("the end of reasoning spelled out", ("<", "/th", "ink", ">"), [27, 20439, 766, 29]),
    ("an accent", ("c", "af", "é"), [66, 2577, 963]),
    ("Observation", ("O", "bserv", "ation"), [46, 4840, 367]),
    ("unbelievable", ("u", "n", "belie", "vable"), [84, 77, 31798, 23760]),
    ("Japanese", ("日", "本", "語"), [8903, 21894, 102819]),
)
REAL_IDS = {f"P{place}": ids for place, (_, _, ids) in enumerate(_PAIRS, 1)}
"""The sampled ids on both vocabularies, by the case's number."""

# Segments that are encoded apart; the last three give the same ids when encoded together.
_JOINS: tuple[tuple[tuple[str, ...], bool], ...] = (
    (("finish[", "]"), True),
    (("Thought:", "\n\n"), True),
    (('a"', "}\n"), True),
    (("go", "ing"), True),
    (("\nHi",), True),
    (("search[cats", "].\n"), False),
    (("12", "34"), False),
    (("Observation:", " 3 cats"), False),
)
_CLASSES = ("retokenised", "whitespace")
_SPELLED = ("control_token", "retokenised")
_SOURCE = "measured on Qwen2.5 and Qwen3"
_QWEN = ("qwen2_5", "qwen3")

PAIRS = tuple(
    Case(
        f"P{place}",
        f"{title} in other tokens",
        _SOURCE,
        "tiny-chatml",
        _SPELLED if "spelled out" in title else _CLASSES,
        said("Say:", *pieces, " now."),
        real=_QWEN,
    )
    for place, (title, pieces, _) in enumerate(_PAIRS, 1)
)

JOINS = tuple(
    Case(
        f"J{place}",
        f"{'joined' if drifts else 'joined without harm'} {' '.join(pieces).strip()!r}",
        _SOURCE,
        "tiny-chatml",
        _CLASSES,
        said(*pieces, "ok" if pieces[-1].endswith("\n") else " ok"),
        naive="failed" if drifts else "prevented",
        audited=drifts,
        real=_QWEN,
    )
    for place, (pieces, drifts) in enumerate(_JOINS, 1)
)
