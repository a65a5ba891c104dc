"""The bandit's scores, its choices, and that what it knows outlives it."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing
from agentgym_tok.skills import (
    Arm,
    Category,
    Retrieved,
    Skill,
    SkillBank,
    SkillQuery,
    Ucb,
    UcbStatistics,
    save_bank,
    ucb_score,
)

FIVE = SkillBank(categories=[Category(name=name) for name in "abcde"])
QUERY = SkillQuery("", ("e",))


@pytest.mark.parametrize(
    ("c", "scores", "best"),
    [
        (1.0, (1.419487031474973, 1.3760869616261555, 1.5174271293851465), "c"),
        (0.1, (0.8619487031474974, 0.5876086961626156, 0.15174271293851466), "a"),
    ],
)
def test_vector_n(c: float, scores: tuple[float, ...], best: str) -> None:
    arms = {"a": (0.8, 6), "b": (0.5, 3), "c": (0.0, 1)}
    got = [ucb_score(mean, chosen, 10, c) for mean, chosen in arms.values()]
    assert got == pytest.approx(scores, rel=1e-12, abs=0)
    bank = SkillBank(categories=[Category(name=name) for name in arms])
    query = SkillQuery("", ("b",))
    known = {name: Arm(chosen=chosen, reward=mean * chosen) for name, (mean, chosen) in arms.items()}
    rule = Ucb(bank, c=c, statistics=UcbStatistics(bank=bank.digest, arms={"b": known}))
    assert rule.retrieve(query).categories == (best,)


def _episode(rule: Ucb, reward: float, query: SkillQuery = QUERY) -> str:
    found = rule.retrieve(query)
    rule.update(found, reward)
    return found.categories[0]


def test_unseen_arms_come_first_in_the_banks_order_and_equals_do_too() -> None:
    rule = Ucb(FIVE)
    assert [_episode(rule, 0.5) for _ in range(7)] == [*"abcde", *"ab"]


def test_nothing_is_counted_before_an_episode_ends() -> None:
    rule = Ucb(FIVE)
    assert {rule.retrieve(QUERY).categories for _ in range(9)} == {("a",)}
    assert rule.statistics == UcbStatistics(bank=FIVE.digest)


def test_each_kind_of_task_has_arms_of_its_own() -> None:
    rule = Ucb(FIVE)
    assert [_episode(rule, 1.0, SkillQuery("", (f"{kind}/task {number}",))) for number, kind in enumerate("ccd")] == [
        *"aba"
    ]
    assert rule.statistics.arms["c"] == {"a": Arm(chosen=1, reward=1.0), "b": Arm(chosen=1, reward=1.0)}
    assert _episode(rule, 1.0, SkillQuery("of no kind", ("unknown",))) == "a"
    assert rule.statistics.arms[""] == {"a": Arm(chosen=1, reward=1.0)}


def test_the_best_arm_is_found() -> None:
    rule = Ucb(FIVE, c=0.5)
    for _ in range(400):
        found = rule.retrieve(QUERY)
        rule.update(found, 0.9 if found.categories == ("d",) else 0.1)
    arms = rule.statistics.arms["e"]
    assert arms["d"].chosen > 300
    assert arms["d"].mean == pytest.approx(0.9)


@given(st.randoms(use_true_random=False), st.integers(0, 4))
@settings(max_examples=20)
def test_no_arm_starves(draw: object, liked: int) -> None:
    # With rewards from 0 to 1 and c = 1, an arm with n episodes has a higher score than any with m of N as soon as
    # sqrt(ln N / n) > 1 + sqrt(ln N / m). For N = 300, n = 3 that is m = 41, and 4 * 41 + 3 < 300.
    rule = Ucb(FIVE)
    for _ in range(300):
        found = rule.retrieve(QUERY)
        rule.update(found, 1.0 if found.categories == ("abcde"[liked],) else draw.random() / 4)  # type: ignore[attr-defined]
    assert min(rule.statistics.arms["e"][name].chosen for name in "abcde") >= 4


_ARMS = st.dictionaries(
    st.sampled_from("abcde"), st.builds(Arm, chosen=st.integers(0, 99), reward=st.floats(-1e9, 1e9)), max_size=5
)


@given(arms=st.dictionaries(st.text(st.characters(codec="utf-8")), _ARMS, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_statistics_load_back_equal(tmp_path: Path, arms: dict[str, dict[str, Arm]]) -> None:
    statistics = UcbStatistics(bank=FIVE.digest, arms=arms)
    statistics.save(tmp_path / "ucb.json")
    assert UcbStatistics.load(tmp_path / "ucb.json") == statistics
    assert Ucb(FIVE, statistics=statistics).statistics == statistics


def test_a_file_goes_on_where_the_last_process_was(tmp_path: Path) -> None:
    file = tmp_path / "ucb.json"
    whole = Ucb(FIVE)
    expected = [_episode(whole, place % 3 / 2) for place in range(40)]
    first = Ucb(FIVE, file=file)
    got = [_episode(first, place % 3 / 2) for place in range(17)]
    second = Ucb(FIVE, file=file)
    got += [_episode(second, place % 3 / 2) for place in range(17, 40)]
    assert got == expected
    assert UcbStatistics.load(file) == whole.statistics
    assert list(tmp_path.iterdir()) == [file]


def test_statistics_survive_a_kill(tmp_path: Path) -> None:
    save_bank(FIVE, tmp_path / "bank.json")
    file = tmp_path / "ucb.json"
    arguments = [sys.executable, Path(__file__).with_name("child.py"), tmp_path / "bank.json", file]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 50:
                child.kill()
                break
        said = [int(line), *map(int, child.stdout.read().split("\n")[:-1])]
    counted = sum(arm.chosen for arm in UcbStatistics.load(file).arms["e"].values())
    assert counted in (said[-1], said[-1] + 1)
    Ucb(FIVE, file=file)


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_lose_no_episode() -> None:
    rule = Ucb(FIVE)

    def run() -> None:
        for place in range(200):
            _episode(rule, 1.0, SkillQuery("", ("abc"[place % 3],)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = {kind: sum(arm.chosen for arm in arms.values()) for kind, arms in rule.statistics.arms.items()}
    assert counts == {"a": 268, "b": 268, "c": 264}


def test_statistics_of_another_bank_are_refused_and_can_be_carried_over(tmp_path: Path) -> None:
    rule = Ucb(FIVE, file=tmp_path / "ucb.json")
    for _ in range(6):
        _episode(rule, 1.0)
    grown = SkillBank(categories=FIVE.categories[:2]).with_skills({"a": [Skill(skill_id="i", principle="p")]})
    with pytest.raises(ConfigError, match="another skill bank") as caught:
        Ucb(grown, file=tmp_path / "ucb.json")
    assert str(tmp_path) in str(caught.value)
    carried = rule.statistics.carried_to(grown)
    assert Ucb(grown, statistics=carried).statistics.arms == {
        "e": {name: arm for name, arm in rule.statistics.arms["e"].items() if name in "ab"}
    }
    with pytest.raises(ConfigError, match="two statistics"):
        Ucb(grown, statistics=carried, file=tmp_path / "ucb.json")


@pytest.mark.parametrize("c", [0.0, -1.0, float("nan"), float("inf")])
def test_exploration_has_a_weight(c: float) -> None:
    with pytest.raises(ConfigError, match="exploration"):
        Ucb(FIVE, c=c)


def test_what_cannot_be_counted_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    rule = Ucb(FIVE, file=tmp_path / "ucb.json")
    found = rule.retrieve(QUERY)
    foreign = Retrieved(QUERY, (), (), ("z",), "")
    for one, reward in ((found, float("nan")), (found, float("inf")), (foreign, 1.0)):
        with pytest.raises(ConfigError, match="cannot be counted"):
            rule.update(one, reward)
    assert rule.statistics.arms == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "[]", '{"bank": 1}', '{"bank": "x", "arms": {"k": {"a": {"chosen": -1}}}}', '{"bank": "x", "n": 1}']
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ucb.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataCorrupt, match=r"ucb\.json"):
        Ucb(FIVE, file=file)
    file.write_text(json.dumps({"bank": FIVE.digest, "arms": {"k": {"z": {}}}}), encoding="utf-8")
    with pytest.raises(DataCorrupt, match="no category"):
        Ucb(FIVE, file=file)
    with pytest.raises(DataMissing):
        UcbStatistics.load(tmp_path / "none")
