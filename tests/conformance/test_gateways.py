"""The reference gateway does the best that can be done with each case, and the naive one has the stated score."""

from collections.abc import Iterator

import pytest
from tito_conformance.agent import Agent
from tito_conformance.board import Board
from tito_conformance.cases import CASES, NUMBERED
from tito_conformance.cli import run
from tito_conformance.engine import FakeEngine
from tito_conformance.gateways.exact import ExactGateway
from tito_conformance.gateways.naive import NaiveGateway
from tito_conformance.judge import Outcome
from tito_conformance.models import Model
from tito_conformance.play import play
from tito_conformance.script import Case, Reply

# What rendering from text survives: canonical ids on a template that keeps its past, and faults of routes not taken.
NAIVE_SCORE = "7 prevented, 0 reported, 56 failed, 0 not applicable"
# Without a gateway the engine renders, which at least writes one BOS; its streams lose ids.
NONE_PREVENTS = {"11", "18", "22", "J6", "J7", "J8"}
NONE_SCORE = "6 prevented, 0 reported, 57 failed, 0 not applicable"


@pytest.fixture(scope="module")
def exact(engine: FakeEngine, models: dict[str, Model]) -> Iterator[str]:
    with ExactGateway(engine.url, list(models.values())) as gateway:
        yield gateway.url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_exact_gateway_does_the_best_that_can_be_done(
    case: Case, exact: str, engine: FakeEngine, models: dict[str, Model]
) -> None:
    outcome = play(case, exact, engine, models[case.model])
    assert outcome.verdict == case.best, outcome.detail


def test_both_gateways_do_the_same_on_real_tokenizers(real_models: dict[str, Model]) -> None:
    models = list(real_models.values())
    with (
        FakeEngine(models) as engine,
        ExactGateway(engine.url, models) as exact,
        NaiveGateway(engine.url, models) as naive,
    ):
        best, text = run(exact.url, engine, real_models), run(naive.url, engine, real_models)
    assert len(best.rows) == len(text.rows) == sum(len(case.real) for case in CASES)
    wrong = [f"{case.number} on {model}: {got.detail}" for case, model, got in best.rows if got.verdict != case.best]
    wrong += [f"{case.number} on {model}, naive" for case, model, got in text.rows if got.verdict != case.naive]
    assert wrong == []


def prevented(board: Board) -> set[str]:
    return {case.number for case, _, outcome in board.rows if outcome.verdict == "prevented"}


def test_the_naive_gateway_has_the_stated_score(engine: FakeEngine, models: dict[str, Model]) -> None:
    with NaiveGateway(engine.url, list(models.values())) as gateway:
        board = run(gateway.url, engine, models)
    assert prevented(board) == {case.number for case in CASES if case.naive == "prevented"}
    assert board.score == NAIVE_SCORE


def test_an_agent_without_a_gateway_has_the_stated_score(engine: FakeEngine, models: dict[str, Model]) -> None:
    board = run(f"{engine.url}/v1", engine, models)
    assert prevented(board) == NONE_PREVENTS
    assert board.score == NONE_SCORE


def test_the_exact_gateway_does_not_guess_which_of_two_equal_answers_was_taken(
    exact: str, engine: FakeEngine, models: dict[str, Model]
) -> None:
    case = NUMBERED[0]
    asked, following = case.steps
    agents = [Agent(exact, case, "asked twice") for _ in range(2)]
    for agent, pieces in zip(agents, (("H", "AVING", " tea.<|im_end|>"), ("HAVING tea.<|im_end|>",)), strict=True):
        engine.put_on(Reply(pieces))
        assert agent.take(asked).drift == ()
    assert agents[0].history == agents[1].history
    engine.put_on(following.reply)
    assert agents[0].take(following).drift == ("other",)


def test_a_model_that_is_not_served_is_not_applicable(engine: FakeEngine, models: dict[str, Model]) -> None:
    with ExactGateway(engine.url, [models["tiny-qwen3"]]) as gateway:
        outcome = play(NUMBERED[0], gateway.url, engine, models["tiny-chatml"])
    assert outcome == Outcome("not applicable", "the gateway does not serve tiny-chatml")


def test_the_36_cases_are_there_each_once() -> None:
    assert [case.number for case in NUMBERED] == [str(number) for number in range(1, 37)]
    assert len({case.name for case in CASES}) == len(CASES)
