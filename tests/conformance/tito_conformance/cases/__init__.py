"""The cases: 36 that were seen in the wild, pairs and joins measured on real vocabularies, and a few more."""

from tito_conformance.cases.clients import CLIENTS
from tito_conformance.cases.engines import ENGINES
from tito_conformance.cases.extra import EXTRA
from tito_conformance.cases.pairs import JOINS, PAIRS
from tito_conformance.cases.rewrites import REWRITES
from tito_conformance.cases.seams import SEAMS
from tito_conformance.cases.vocabulary import VOCABULARY
from tito_conformance.script import Case

__all__ = ["CASES", "NUMBERED"]

NUMBERED: tuple[Case, ...] = tuple(
    sorted([*VOCABULARY, *REWRITES, *SEAMS, *CLIENTS, *ENGINES], key=lambda case: int(case.number))
)
"""The 36, in order."""

CASES: tuple[Case, ...] = (*NUMBERED, *PAIRS, *JOINS, *EXTRA)
"""All of them."""
