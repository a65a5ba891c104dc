"""Comparisons: pairs of the same sample, what flipped, and runs that cannot be compared."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import EpisodeResult, RunResults, bootstrap, compare, mcnemar, paired_permutation, scores_of
from agentgym_tok.evaluate.provenance import MadeBy
from agentgym_tok.evaluate.run_results import PartResults

Make = Callable[..., EpisodeResult]


def run_of(episodes: Sequence[EpisodeResult], *, source: str = "Toy", **config: Any) -> RunResults:
    names = list(dict.fromkeys(episode.part for episode in episodes))
    plain = {"world": "toy", "source": source, "prompting": "step", "max_steps": 9, "seed": 1, "samples": 1}
    digests = {"tasks_digest": "a", "data_digest": "b", "metrics": {"score": "score"}}
    parts = tuple(PartResults(name=name, tasks=1, **plain, **digests) for name in names)
    made_by = MadeBy(content="c", begun_with=("c",), chat="builtin", policy="p", policy_digest=None, configuration="d")
    scores = [score for name in names for score in scores_of([e for e in episodes if e.part == name], ["a", "b"], name)]
    return RunResults(
        library="0",
        source=source,
        fingerprint="f",
        config=config,
        seconds=1.0,
        parts=parts,
        scores=tuple(scores),
        made_by=made_by,
        episodes=tuple(episodes),
    )


def episodes(result: Make, run: str, solved: Sequence[bool], *, part: str = "home", **more: Any) -> list[EpisodeResult]:
    return [
        result(
            "ab"[n % 2], episode=f"{run}{n}", part=part, task=f"t{n}", success=success, steps=n + success,
            metrics={"score": (n + success) / 20}, **more,
        )
        for n, success in enumerate(solved)
    ]  # fmt: skip


def test_figures_are_of_pairs(result: Make) -> None:
    before, after = [n % 3 == 0 for n in range(12)], [n % 4 != 1 for n in range(12)]
    found = compare(run_of(episodes(result, "x", before)), run_of(episodes(result, "y", after)), names=("x", "y"))
    (part,) = found.parts
    assert (found.base, found.other, part.pairs, part.left_out) == ("x", "y", 12, 0)
    figures = {(figure.label, figure.figure): figure for figure in part.figures}
    assert list(figures) == [
        *[(label, figure) for label in ("a", "b", "All") for figure in ("success", "score")],
        ("All", "steps"),
        ("All", "turn_tokens"),
    ]
    differences = [b - a for a, b in zip(before, after, strict=True)]
    total = figures["All", "success"]
    assert (total.base, total.other, total.tasks) == (4 / 12, 9 / 12, 12)
    assert total.difference == pytest.approx(5 / 12)
    assert (total.low, total.high) == bootstrap(differences, range(12), lowest=-1, highest=1)
    assert total.p == paired_permutation(differences)
    assert figures["a", "success"].p is None
    assert figures["All", "score"].difference == pytest.approx(5 / 12 / 20)
    assert part.mcnemar == mcnemar(differences.count(-1), differences.count(1))
    assert [(flip.task, flip.base, flip.other) for flip in part.lost] == [("t9", "x9", "y9")]
    assert {flip.task for flip in part.gained} == {f"t{n}" for n, gain in enumerate(differences) if gain == 1}


def test_a_run_does_not_differ_from_itself(result: Make) -> None:
    run = run_of(episodes(result, "x", [True, False] * 5))
    found = compare(run, run)
    (part,) = found.parts
    assert (part.gained, part.lost, part.mcnemar, found.options) == ((), (), 1.0, ())
    assert all(figure.low <= figure.difference == 0 <= figure.high for figure in part.figures)
    assert {figure.p for figure in part.figures} == {1.0, None}


def test_samples_are_paired_by_their_place_and_weigh_as_one_task(result: Make) -> None:
    def samples(run: str, solved: int) -> RunResults:
        return run_of(
            [
                result(episode=f"{run}{n}.{r}", part="home", task=f"t{n}", replica=r, success=r < solved)
                for n in range(6)
                for r in range(3)
            ]
        )

    (part,) = compare(samples("x", 1), samples("y", 2)).parts
    assert (part.pairs, part.mcnemar) == (18, None)
    assert [(flip.task, flip.replica) for flip in part.gained] == [(f"t{n}", 1) for n in range(6)]
    total = next(figure for figure in part.figures if figure.figure == "success")
    assert total.difference == pytest.approx(1 / 3)
    assert total.p == 2 / 2**6


def test_other_tasks_are_refused_or_left_out(result: Make) -> None:
    one, two = run_of(episodes(result, "x", [True] * 5)), run_of(episodes(result, "y", [False] * 7))
    with pytest.raises(ConfigError, match=r"other tasks or samples.*7 episodes, 5 of them.*next: .*--common"):
        compare(one, two)
    (part,) = compare(one, two, common=True).parts
    assert (part.pairs, part.left_out) == (5, 2)
    moved = [episode.model_copy(update={"task": f"u{episode.task}"}) for episode in two.episodes]
    with pytest.raises(ConfigError, match="other tasks or samples"):
        compare(one, run_of(moved), common=True)


def test_other_parts_are_refused_or_left_out(result: Make) -> None:
    home, shop = episodes(result, "x", [True] * 3), episodes(result, "x", [True] * 3, part="shop")
    with pytest.raises(ConfigError, match=r"other parts.*got: home; expected: home, shop.*--common"):
        compare(run_of([*home, *shop]), run_of(home))
    assert [part.name for part in compare(run_of([*home, *shop]), run_of(home), common=True).parts] == ["home"]
    with pytest.raises(ConfigError, match=r"other parts.*runs of the same worlds"):
        compare(run_of(home), run_of(shop), common=True)


def test_other_worlds_and_other_data_are_refused_in_any_case(result: Make) -> None:
    one = episodes(result, "x", [True] * 3, opening="aaaa")
    for common in (False, True):
        with pytest.raises(ConfigError, match=r"other worlds.*got: Toy; expected: Toy-synth"):
            compare(run_of(one, source="Toy-synth"), run_of(one), common=common)
        other = episodes(result, "y", [True] * 3, opening="bbbb")
        with pytest.raises(ConfigError, match=r"not the same in both.*task t0.*got: .*bbbb; expected: aaaa"):
            compare(run_of(one), run_of(other), common=common)
    # Where one did not even start nobody knows, and it counts as not solved.
    broken = [other[0].model_copy(update={"opening": "", "success": False}), *one[1:]]
    assert [flip.task for flip in compare(run_of(one), run_of(broken)).parts[0].lost] == ["t0"]


def test_what_was_set_differently_is_listed_by_the_names_of_parts(result: Make) -> None:
    def run(temperature: float, **config: Any) -> RunResults:
        tasks = [{"name": "home", "sampling": {"temperature": temperature}}]
        return run_of(episodes(result, "x", [True] * 3), tasks=tasks, sampling={"temperature": 9}, **config)

    found = compare(run(0.4, policy="a", out="x", concurrency=3), run(0.7, policy="b", out="y", concurrency=4))
    assert [(each.name, each.base, each.other) for each in found.options] == [
        ("policy", "a", "b"),
        ("tasks.home.sampling.temperature", 0.4, 0.7),
    ]
