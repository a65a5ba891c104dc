"""The library's audit finds each case in its record, under the class that the case names first."""

from collections.abc import Iterator

import pytest
from tito_conformance.cases import CASES
from tito_conformance.engine import FakeEngine
from tito_conformance.gateways.exact import ExactGateway
from tito_conformance.gateways.naive import NaiveGateway
from tito_conformance.models import Model
from tito_conformance.play import taken_steps
from tito_conformance.record import record_of
from tito_conformance.script import Case

from agentgym_tok.drift import DRIFT_CLASSES, audit


@pytest.fixture(scope="module")
def exact(engine: FakeEngine, models: dict[str, Model]) -> Iterator[str]:
    with ExactGateway(engine.url, list(models.values())) as gateway:
        yield gateway.url


@pytest.fixture(scope="module")
def naive(engine: FakeEngine, models: dict[str, Model]) -> Iterator[str]:
    with NaiveGateway(engine.url, list(models.values())) as gateway:
        yield gateway.url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_audit_names_the_case(
    case: Case, exact: str, naive: str, engine: FakeEngine, models: dict[str, Model]
) -> None:
    model = models[case.model]
    record = record_of(model, taken_steps(case, exact, engine, model))
    history = None
    if case.number == "31":  # what decoding left out, only the text that somebody kept can tell
        last = taken_steps(case, naive, engine, model)[-1]
        history = [*last.messages, last.received.message]
    report = audit(
        model.chat,
        record.episode,
        history=history,
        streamed=record.streamed,
        logprobs=record.logprobs,
        special_tokens="bos" in case.classes,
    )
    found = {drift.kind for drift in report.drifts}
    assert case.classes[0] in found if case.audited else not found, report.drifts


def test_cases_name_classes_of_the_library() -> None:
    assert {name for case in CASES for name in case.classes} <= set(DRIFT_CLASSES)
