"""The recording proxy prevents or reports every case, and its traces prove it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from tito_conformance.board import Board
from tito_conformance.cases import CASES
from tito_conformance.cli import run
from tito_conformance.engine import FakeEngine
from tito_conformance.gateways.proxy import ProxyGateway
from tito_conformance.models import BUILT, Model
from tito_conformance.script import Case, Verdict

from agentgym_tok.trace import verify

SCORE = "51 prevented, 12 reported, 0 failed, 0 not applicable"
TOKEN_SCORE = "52 prevented, 10 reported, 1 failed, 0 not applicable"
REAL_SCORE = "71 prevented, 12 reported, 0 failed, 0 not applicable"
# Whoever streams from an engine that loses ids in streams cannot prevent it.
OTHERS: Mapping[str, Verdict] = {"X5": "reported"}
# An engine that encodes what it is sent again, and says nothing of the prompt, is found out by nobody.
OTHERS_BY_TOKENS: Mapping[str, Verdict] = {"30": "failed"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
CLOCK = "tiny-llama3-clock"


class Played(NamedTuple):
    """Hold a run of the suite, and the folder of its traces."""

    board: Board
    folder: Path


def play_all(models: Mapping[str, Model], folder: Path, *, scale_out: bool = False) -> Played:
    served = list(models.values())
    with FakeEngine(served, scale_out=scale_out) as engine, ProxyGateway(engine.url, served, folder) as proxy:
        return Played(run(proxy.url, engine, models), folder)


@pytest.fixture(scope="module")
def played(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_all(models, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_proxy_does_the_best_that_can_be_done_through_a_stream(case: Case, played: Played) -> None:
    (outcome,) = [outcome for one, _, outcome in played.board.rows if one is case]
    assert outcome.verdict == OTHERS.get(case.number, case.best), outcome.detail


def test_the_proxy_has_the_stated_score(played: Played) -> None:
    assert played.board.score == SCORE
    assert SCORE.partition(", 0 not")[0] in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BUILT)
def test_the_trace_of_each_model_verifies_with_complete_accounting(
    name: str, played: Played, models: dict[str, Model]
) -> None:
    # A template that tells the time makes no context twice.
    found = verify(played.folder / name, None if name == CLOCK else models[name].chat)
    assert found.ok, found.breaches
    assert all(accounting.complete for accounting in found.accounting)
    cases = [case for case in CASES if case.model == name]
    assert (found.episodes, found.turns) == (len(cases), sum(len(case.steps) for case in cases))
    assert found.running == 0
    assert found.replayed == (0 if name == CLOCK else found.turns)


def test_only_turns_whose_ids_are_in_doubt_are_not_trained(played: Played) -> None:
    masked: dict[str, set[str]] = {}
    for name in BUILT:
        rl, _ = verify(played.folder / name).accounting
        masked[name] = set(rl.masked)
    assert masked.pop("tiny-chatml") == {"inexact_ids", "sentinel_logprobs"}
    assert set().union(*masked.values()) == set()


def test_by_the_token_route_the_proxy_does_not_see_one_fault(models: dict[str, Model], tmp_path: Path) -> None:
    board, folder = play_all(models, tmp_path, scale_out=True)
    expected = {case.number: OTHERS_BY_TOKENS.get(case.number, case.best) for case in CASES}
    assert {case.number: outcome.verdict for case, _, outcome in board.rows} == expected
    assert board.score == TOKEN_SCORE
    for name, model in models.items():
        found = verify(folder / name, None if name == CLOCK else model.chat)
        assert found.ok, found.breaches
        assert all(accounting.complete for accounting in found.accounting)


def test_the_proxy_does_the_same_on_real_tokenizers(real_models: dict[str, Model], tmp_path: Path) -> None:
    board, folder = play_all(real_models, tmp_path)
    wrong = [f"{case.number} on {model}: {got.detail}" for case, model, got in board.rows if got.verdict != case.best]
    assert wrong == []
    assert board.score == REAL_SCORE
    for name, model in real_models.items():
        found = verify(folder / name, model.chat)
        assert found.ok, found.breaches
        assert all(accounting.complete for accounting in found.accounting)
