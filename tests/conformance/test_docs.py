"""The page's table and scores are those of the suite."""

from pathlib import Path

from tito_conformance.cases import CASES, NUMBERED
from tito_conformance.script import Case

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")


def row(case: Case) -> str:
    models, classes = ", ".join((case.model, *case.real)), ", ".join(case.classes)
    return f"| {case.number} | {case.title} | {case.source} | {models} | {case.best} | {case.naive} | {classes} |"


def test_the_table_holds_every_case_and_nothing_else() -> None:
    table = PAGE[PAGE.index("| # | case |") :].splitlines()
    assert table[2:] == [row(case) for case in CASES]


def test_the_page_states_the_scores() -> None:
    best, naive = [case.best for case in CASES], [case.naive for case in CASES]
    exact = f"{best.count('prevented')} prevented, {best.count('reported')} reported, 0 failed"
    assert exact in PAGE
    assert f"{naive.count('prevented')} prevented, {naive.count('failed')} failed" in PAGE
    assert f"plays {len(CASES)} small conversations" in PAGE
    assert len(NUMBERED) == 36
