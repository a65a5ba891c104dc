"""The judge sees what a gateway does wrong: each spoilt step of a good run changes the verdict."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from tito_conformance.cases import CASES
from tito_conformance.engine import FakeEngine
from tito_conformance.gateways.exact import ExactGateway
from tito_conformance.judge import Taken, judge
from tito_conformance.models import Model
from tito_conformance.play import taken_steps
from tito_conformance.script import Case

Spoil: TypeAlias = Callable[[Model, Taken], Taken]


def of(number: str) -> Case:
    return next(case for case in CASES if case.number == number)


@pytest.fixture(scope="module")
def good(engine: FakeEngine, models: dict[str, Model]) -> Iterator[Callable[[Case], list[Taken]]]:
    with ExactGateway(engine.url, list(models.values())) as gateway:
        yield lambda case: taken_steps(case, gateway.url, engine, models[case.model])


def prompt(change: Callable[[Model, list[int]], list[int]]) -> Spoil:
    """Change what arrives at the engine, and let the gateway tell it truly."""

    def spoil(model: Model, turn: Taken) -> Taken:
        changed = change(model, list(turn.calls[-1].prompt))
        call = replace(turn.calls[-1], prompt=tuple(changed))
        return replace(turn, calls=[call], received=replace(turn.received, prompt_ids=changed))

    return spoil


def told(**changed: Any) -> Spoil:
    return lambda _model, turn: replace(turn, received=replace(turn.received, **changed))


def without_newline(model: Model, ids: list[int]) -> list[int]:
    place = ids.index(model.encode("<|im_end|>")[0], 30)
    return ids[: place + 1] + ids[place + 2 :]


def doubled_stop(model: Model, ids: list[int]) -> list[int]:
    place = len(ids) - ids[::-1].index(model.encode("<|im_end|>")[0])
    return [*ids[:place], ids[place - 1], *ids[place:]]


def canonical(model: Model, ids: list[int]) -> list[int]:
    return model.encode(model.spell(ids).decode())


def control_for_text(model: Model, ids: list[int]) -> list[int]:
    return canonical(model, ids)


def text_for_control(model: Model, ids: list[int]) -> list[int]:
    return [*model.sample([model.spell(ids[:1])]), *ids[1:]]


@pytest.mark.parametrize(
    ("number", "step", "spoil", "detail"),
    [
        ("11", 2, prompt(without_newline), "the past changed|after the turn came"),
        ("11", 2, prompt(doubled_stop), "after the turn came"),
        ("11", 2, prompt(lambda _, ids: ids[:-1]), "after the turn came"),
        ("11", 2, prompt(lambda _, ids: ids[:25]), "the past changed"),
        ("1", 2, prompt(canonical), "the past changed at id 24 of 29, from 'H·AVING.*' to 'HAV·ING"),
        ("18", 1, prompt(lambda _, ids: [ids[0], *ids]), "the first prompt is"),
        ("19", 1, prompt(control_for_text), r"text became the control token <\|im_end\|>"),
        ("19", 1, prompt(text_for_control), r"the control token <\|im_start\|> became text"),
        ("1", 1, told(ids=[1, 2]), "it tells 2 sampled ids"),
        ("1", 1, told(ids=None), "it tells no ids of this turn"),
        ("1", 1, told(logprobs=[-0.5] * 5), "the log-probabilities"),
        ("1", 1, told(prompt_ids=[1, 2]), "the prompt ids that it tells"),
        ("1", 1, told(drift=("whitespace",), ids=[1]), r"declared: whitespace"),
        ("1", 2, told(drift=("retokenised",)), "it declares retokenised, but nothing drifted"),
        ("33", 2, told(drift=()), "the edit was not declared"),
        ("33", 2, told(drift=("history_edit",)), "the edit was not declared"),
        ("33", 2, prompt(lambda _, ids: ids[:3]), "the engine never saw 'Tuesday'"),
        ("1", 2, lambda _, turn: replace(turn, calls=[]), "nothing arrived at the engine"),
        ("1", 2, told(status=400, error="no"), "HTTP 400: no"),
        ("1", 2, told(status=502, error="no", drift=("retokenised",)), "HTTP 502: no"),
        ("30", 2, told(status=502, error="no", drift=()), "HTTP 502: no"),
        ("30", 2, told(status=502, error="no", drift=("whitespace",)), "HTTP 502: no"),
    ],
)
def test_what_is_spoilt_fails(
    number: str,
    step: int,
    spoil: Spoil,
    detail: str,
    good: Callable[[Case], list[Taken]],
    models: dict[str, Model],
) -> None:
    case, model = of(number), models[of(number).model]
    taken = good(case)
    assert judge(model, case, taken).verdict == case.best
    taken[step - 1] = spoil(model, taken[step - 1])
    outcome = judge(model, case, taken)
    assert outcome.verdict == "failed"
    assert re.search(f"step {step}: .*({detail})", outcome.detail), outcome.detail


def test_a_declared_break_is_reported_and_not_prevented(
    good: Callable[[Case], list[Taken]], models: dict[str, Model]
) -> None:
    case = of("1")
    taken = good(case)
    spoilt = prompt(canonical)(models[case.model], taken[1])
    taken[1] = replace(spoilt, received=replace(spoilt.received, drift=("retokenised",)))
    outcome = judge(models[case.model], case, taken)
    assert (outcome.verdict, outcome.detail) == ("reported", "step 2: retokenised")


def test_an_answer_of_a_broken_engine_that_is_refused_by_name_is_reported(
    good: Callable[[Case], list[Taken]], models: dict[str, Model]
) -> None:
    case = of("30")
    taken = good(case)
    taken[1] = told(status=502, error="no", drift=("retokenised",))(models[case.model], taken[1])
    outcome = judge(models[case.model], case, taken)
    assert (outcome.verdict, outcome.detail) == ("reported", "step 2: refused as retokenised")


def test_an_engine_fault_that_only_a_record_shows_is_not_applicable_without_one(
    good: Callable[[Case], list[Taken]], models: dict[str, Model]
) -> None:
    case = of("X4")
    silent = [replace(turn, received=replace(turn.received, ids=None, logprobs=None, drift=())) for turn in good(case)]
    silent[1] = replace(silent[1], calls=good(of("11"))[1].calls)
    first = silent[0]
    kept = (*first.calls[-1].prompt, *models[case.model].sample(first.step.reply.pieces))
    tail = models[case.model].encode("".join(case.steps[1].tails[0]))
    silent[1] = replace(silent[1], calls=[replace(silent[1].calls[-1], prompt=(*kept, *tail))])
    silent[1].received.prompt_ids = None
    assert judge(models[case.model], case, silent).verdict == "not applicable"
