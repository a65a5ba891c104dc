"""The table for papers has the columns of the paper, and says what its averages are."""

from collections.abc import Callable
from typing import Any

from agentgym_tok.evaluate import EpisodeResult, RunResults, macro_of, scores_of
from agentgym_tok.evaluate.paper_table import paper_table
from agentgym_tok.evaluate.provenance import MadeBy
from agentgym_tok.evaluate.results import ALFWORLD_LABELS
from agentgym_tok.evaluate.run_results import PartResults

DATASETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def test_columns_are_those_of_table_1(result: Callable[..., EpisodeResult]) -> None:
    def part(name: str, source: str, metrics: dict[str, str]) -> PartResults:
        plain: dict[str, Any] = {
            "world": name,
            "prompting": "step",
            "max_steps": 9,
            "seed": 1,
            "tasks": 9,
            "samples": 1,
        }
        return PartResults(name=name, source=source, metrics=metrics, tasks_digest="a", data_digest="b", **plain)

    home = [
        result(label, task=f"{label}{n}", success=n < 1) for label in ALFWORLD_LABELS.values() for n in range(2)
    ] + [result("Pick", task="more", success=True)]
    shop = [result(task=str(n), success=n == 0, metrics={"score": n / 4}) for n in range(4)]
    search = [
        result(label, task=f"{label}{n}", metrics={"em": float(n), "f1": 1.0}) for label in DATASETS for n in (0, 1)
    ]
    search += [result("nq", task=f"more{n}", metrics={"em": 1.0, "f1": 1.0}) for n in range(2)]
    labels = {"home": ALFWORLD_LABELS.values(), "shop": [], "search": DATASETS}
    found = {"home": home, "shop": shop, "search": search}
    macros = [macro_of(results, name) for name, results in found.items()]
    run = RunResults(
        library="0",
        source="",
        fingerprint="f",
        config={},
        seconds=0,
        parts=(
            part("home", "ALFWorld", {}),
            part("shop", "WebShop", {"score": "score"}),
            part("search", "SearchQA", {"em": "EM", "f1": "F1"}),
        ),
        scores=tuple(score for name in found for score in scores_of(found[name], labels[name], name)),
        macros=tuple(macro for macro in macros if macro),
        made_by=MadeBy(content="c", begun_with=("c",), chat="b", policy="p", policy_digest=None, configuration="d"),
        episodes=(),
    )
    heading, _, line, _, note = paper_table({"GRPO": run}).splitlines()
    columns = [cell.strip() for cell in heading.strip("|").split("|")]
    assert columns[1:8] == [f"home: {kind}" for kind in ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2", "All")]
    assert columns[8:10] == ["shop: score", "shop: success"]
    assert [name.removeprefix("search: ") for name in columns[10:]] == [
        "NQ", "TriviaQA", "PopQA", "HotpotQA", "2Wiki", "MuSiQue", "Bamboogle", "Avg",
    ]  # fmt: skip
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[0] == "GRPO"
    # All counts episodes, Avg counts datasets.
    assert (cells[1], cells[7]) == ("66.7", f"{100 * 7 / 13:.1f}")
    assert cells[8:10] == ["37.5", "25.0"]
    assert (cells[10], cells[-1]) == ("75.0", f"{(75 + 6 * 50) / 7:.1f}")
    assert "All: over episodes; Avg: mean over kinds of task" in note
