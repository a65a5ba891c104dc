"""Many at once: answers of other requests are found, whether swapped, doubled, or drawn after other contexts."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from toy import Floats, Toy, patient

from agentgym_tok import Completion, Request
from agentgym_tok.doctor.concurrency import check_concurrency

Answers = Sequence[Completion | Exception]


class Swaps(Toy):
    def generate(self, requests: Sequence[Request]) -> Answers:
        answers = list(super().generate(requests))
        return [*answers[1:2], *answers[:1], *answers[2:]]


class Doubles(Toy):
    def generate(self, requests: Sequence[Request]) -> Answers:
        answers = list(super().generate(requests))
        return [*answers[:1], *answers[:1][: len(answers) - 1], *answers[2:]]


class MixesPrompts(Toy):
    """Draw with the right seed after the next one's context, so that nothing equals another's answer."""

    deterministic = False

    def generate(self, requests: Sequence[Request]) -> Answers:
        moved = [*requests[1:], *requests[:1]]
        return [self.answer(replace(one, ids_T=other.ids_T)) for one, other in zip(requests, moved, strict=True)]


class DependsOnTheBatch(Toy):
    """Round otherwise in a batch, as kernels do, so that a turn or two part."""

    deterministic = False
    together = False

    def generate(self, requests: Sequence[Request]) -> Answers:
        self.together, self.count = len(requests) > 1, itertools.count()
        return super().generate(requests)

    def bent(self, logits: Floats) -> Floats:
        return logits[::-1] if self.together and next(self.count) == 20 else logits


@pytest.mark.parametrize("reference", [True, False])
def test_answers_in_their_places_pass(reference: bool) -> None:
    assert check_concurrency(patient(Toy(), reference=reference)).status == "ok"


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(
    ("policy", "words"), [(Swaps(), "2 of 12 answers are swapped"), (Doubles(), "1 of 12 answers are doubled")]
)
def test_answers_of_other_requests_are_found(policy: Toy, words: str, reference: bool) -> None:
    found = check_concurrency(patient(policy, reference=reference))
    assert (found.status, words in found.found) == ("failed", True)
    assert "in the order of their requests" in found.advice


def test_answers_after_other_contexts_are_found_by_the_reference() -> None:
    found = check_concurrency(patient(MixesPrompts()))
    assert (found.status, "12 of 12 answers were drawn after other contexts" in found.found) == ("failed", True)
    assert check_concurrency(patient(MixesPrompts(), reference=False)).status == "skipped"


@pytest.mark.parametrize("reference", [True, False])
def test_rounding_is_a_warning_with_its_place_and_a_broken_promise_a_failure(reference: bool) -> None:
    found = check_concurrency(patient(DependsOnTheBatch(), reference=False))
    assert (found.status, "1 of 12 turns part, at token 8" in found.found) == ("warning", True)
    promised = DependsOnTheBatch()
    promised.deterministic = True
    found = check_concurrency(patient(promised, reference=False))
    assert (found.status, "do not declare it" in found.advice) == ("failed", True)
