"""The scoreboard: what a gateway did with each case, for people and for programs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tito_conformance.judge import Outcome
from tito_conformance.script import Case, Verdict

__all__ = ["Board"]

_VERDICTS: tuple[Verdict, ...] = ("prevented", "reported", "failed", "not applicable")


@dataclass(frozen=True, slots=True)
class Board:
    """Hold the outcomes of a run.

    Args:
        gateway: What was judged.
        rows: Each case with its model's name and its outcome.
    """

    gateway: str
    rows: Sequence[tuple[Case, str, Outcome]]

    @property
    def totals(self) -> dict[Verdict, int]:
        """How often each verdict fell."""
        counted = Counter(outcome.verdict for _, _, outcome in self.rows)
        return {verdict: counted[verdict] for verdict in _VERDICTS}

    @property
    def score(self) -> str:
        """The totals in a line."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.totals.items())

    def table(self) -> str:
        """Return the scoreboard for people."""
        lines = [f"{self.gateway}", ""]
        for case, model, outcome in self.rows:
            detail = f"  {outcome.detail}" if outcome.detail else ""
            lines.append(f"{case.number:>4}  {outcome.verdict:<14}  {case.title} [{model}]{detail}")
        return "\n".join([*lines, "", f"{len(self.rows)} cases: {self.score}"])

    def json(self) -> str:
        """Return the scoreboard for programs."""
        cases = [
            {
                "number": case.number,
                "title": case.title,
                "source": case.source,
                "model": model,
                "classes": case.classes,
                "best": case.best,
                "verdict": outcome.verdict,
                "detail": outcome.detail,
            }
            for case, model, outcome in self.rows
        ]
        return json.dumps({"gateway": self.gateway, "totals": self.totals, "cases": cases}, indent=1)
