"""Sampling parameters: what is ignored, replaced or added is found, with the advice that fits."""

from dataclasses import replace

import numpy as np
import pytest
from toy import Floats, Toy, patient

from agentgym_tok import Completion, Request, Sampling
from agentgym_tok.doctor.sampling import check_greedy, check_limits, check_top_k


class Forced(Toy):
    """Replace parameters by the engine's own."""

    def __init__(self, **forced: float) -> None:
        self.forced = forced

    def sampling(self, request: Request) -> Sampling:
        return request.sampling.model_copy(update=self.forced)


class Penalty(Toy):
    """Hold the likeliest tokens down, as a repetition penalty would where they stand in the context."""

    def bent(self, logits: Floats) -> Floats:
        return np.where(logits > logits.max() - 0.3, logits - 2.0, logits)


@pytest.mark.parametrize("reference", [True, False])
def test_parameters_that_are_kept_pass(reference: bool) -> None:
    for check in (check_greedy, check_top_k, check_limits):
        assert check(patient(Toy(), reference=reference)).status == "ok"


@pytest.mark.parametrize("reference", [True, False])
def test_a_temperature_of_the_engines_own_is_found_at_temperature_0(reference: bool) -> None:
    found = check_greedy(patient(Forced(temperature=0.8), reference=reference))
    assert found.status == "failed"


def test_a_penalty_is_found_at_temperature_0_by_the_reference() -> None:
    assert "without --reference" in check_greedy(patient(Penalty(), reference=False)).found
    found = check_greedy(patient(Penalty()))
    assert (found.status, "penalty" in found.advice) == ("failed", True)
    assert found.figures["distance"] > 0.25


def test_an_ignored_top_k_is_found_twice() -> None:
    found = check_top_k(patient(Forced(top_k=0)))
    assert (found.status, "ignores top_k" in found.advice) == ("failed", True)
    found = check_greedy(patient(Forced(top_k=0), reference=False))
    assert (found.status, "top_k=1 part at token" in found.found) == ("failed", True)


def test_a_seed_that_matters_at_temperature_0_is_found_by_a_silent_engine() -> None:
    class Silent(Forced):
        def answer(self, request: Request) -> Completion:
            return replace(super().answer(request), logprobs_T=None, logprobs="missing")

    found = check_greedy(patient(Silent(temperature=0.8), reference=False))
    assert (found.status, "another seed part at token" in found.found) == ("failed", True)


def test_a_tie_may_fall_to_either_side() -> None:
    class Torn(Toy):
        """Rounding decides between the likeliest two."""

        def bent(self, logits: Floats) -> Floats:
            return logits + np.random.default_rng(self.calls()).uniform(0, 1e-3, size=len(logits))

        count = 0

        def calls(self) -> int:
            self.count += 1
            return self.count

        def logits(self, ids_T: np.ndarray) -> Floats:
            logits = super().logits(ids_T)
            likeliest = np.argsort(-logits)[:2]
            logits[likeliest[1]] = logits[likeliest[0]]
            return logits

    found = check_greedy(patient(Torn(), reference=False))
    assert found.status == "ok", found.found


def test_a_certain_model_says_nothing_of_top_k() -> None:
    class Certain(Toy):
        def logits(self, ids_T: np.ndarray) -> Floats:
            return super().logits(ids_T) * 1000

    assert check_top_k(patient(Certain())).status == "skipped"


def test_a_limit_of_the_engines_own_is_found() -> None:
    class Shortened(Toy):
        def sampling(self, request: Request) -> Sampling:
            return request.sampling.model_copy(update={"max_tokens": min(5, request.sampling.max_tokens)})

    for policy, words in (
        (Forced(max_tokens=31), "31 ids for max_tokens=1,"),
        (Shortened(), "5 ids for max_tokens=7,"),
    ):
        found = check_limits(patient(policy))
        assert (found.status, words in found.found, "limit of its own" in found.advice) == ("failed", True, True)


def test_turns_that_all_end_early_say_nothing_of_the_limit() -> None:
    class Brief(Toy):
        stop_ids = tuple(range(10**5))

    assert check_limits(patient(Brief())).status == "skipped"
