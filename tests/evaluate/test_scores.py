"""Scores: what the tables say is what the results say."""

from collections.abc import Callable
from statistics import fmean

import pytest

from agentgym_tok.evaluate import EpisodeResult, bootstrap, macro_of, passes_of, scores_of, wilson

Make = Callable[..., EpisodeResult]


def test_scores_are_rates_with_intervals_in_the_papers_order(result: Make) -> None:
    results = [
        result("Cool", task="a", success=True, steps=4),
        result("Pick", task="b", success=True, steps=2),
        result("Pick", task="c", failure="policy: X: y"),
        result("other", task="d"),
    ]
    scores = scores_of(results, part="home")
    assert [(score.label, score.n, score.success) for score in scores] == [
        ("Pick", 2, 0.5),
        ("Cool", 1, 1.0),
        ("other", 1, 0.0),
        ("All", 4, 0.5),
    ]
    assert (scores[0].steps, scores[0].failures, scores[0].part) == (1.5, 1, "home")
    assert (scores[-1].low, scores[-1].high, scores[-1].interval) == (*wilson(2, 4), "wilson")


def test_a_world_without_kinds_of_task_has_one_line(result: Make) -> None:
    results = [result(task="a"), result(task="b")]
    assert [score.label for score in scores_of(results, [])] == ["All"]
    assert macro_of(results) is None


def test_no_results_are_no_scores() -> None:
    assert scores_of([]) == []
    assert passes_of([]) == []


def test_means_are_bootstrapped_over_tasks(result: Make) -> None:
    values = (1.0, 0.5, 0.0, 0.5)
    results = [result("nq", task=str(n), metrics={"f1": value}) for n, value in enumerate(values)]
    results += [result("popqa", task="p", metrics={"f1": 0.25})]
    scores = {score.label: score.metrics["f1"] for score in scores_of(results, ["popqa", "nq"])}
    assert list(scores) == ["popqa", "nq", "All"]
    assert [mean.mean for mean in scores.values()] == [0.25, 0.5, 0.45]
    assert (scores["nq"].low, scores["nq"].high) == bootstrap(values, range(4), lowest=0, highest=1)
    assert scores["nq"].interval == "bootstrap"


def test_rates_of_several_samples_are_bootstrapped_over_tasks(result: Make) -> None:
    results = [result(task=str(n), replica=r, success=n < 10) for n in range(20) for r in range(4)]
    (score,) = scores_of(results, [])
    assert (score.n, score.tasks, score.interval) == (80, 20, "bootstrap")
    low, high = wilson(40, 80)
    # Four samples that agree are one: the interval is as wide as that of 20 tasks.
    assert score.high - score.low > 1.5 * (high - low)


def test_the_macro_average_counts_each_kind_the_same(result: Make) -> None:
    results = [result("nq", task=f"n{n}", success=True, metrics={"em": 1.0}) for n in range(8)]
    results += [result("popqa", task=f"p{n}", success=n == 0, metrics={"em": float(n == 0)}) for n in range(2)]
    macro = macro_of(results, "search")
    assert macro is not None
    assert (macro.kinds, macro.part) == (2, "search")
    assert (macro.success.mean, macro.metrics["em"].mean) == (0.75, 0.75)
    assert scores_of(results, ["nq", "popqa"])[-1].success == 0.9
    assert 0 < macro.success.low < 0.75 < macro.success.high <= 1


def test_passes_go_up_to_the_samples_that_every_task_has(result: Make) -> None:
    solved = {"a": [True, True, True], "b": [True, False, False], "c": [False, False, False, True]}
    results = [
        result(task=task, replica=replica, success=success)
        for task, row in solved.items()
        for replica, success in enumerate(row)
    ]
    lines = passes_of(results, "home")
    assert [line.k for line in lines] == [1, 2, 3]
    assert lines[0].at_k.mean == lines[0].all_k.mean == pytest.approx(fmean([1, 1 / 3, 1 / 4]))
    assert lines[1].at_k.mean == pytest.approx(fmean([1, 2 / 3, 1 / 2]))
    assert lines[1].all_k.mean == pytest.approx(1 / 3)
    assert lines[2].at_k.mean == pytest.approx(fmean([1, 1, 3 / 4]))
    assert lines[1].at_k.low <= lines[1].at_k.mean <= lines[1].at_k.high


def test_single_samples_have_no_passes(result: Make) -> None:
    assert passes_of([result(task="a"), result(task="b")]) == []
