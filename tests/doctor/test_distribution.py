"""The whole distribution: hidden settings are found and named, and a sound engine nearly never fails."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Floats, Toy, patient

from agentgym_tok import Request, Sampling
from agentgym_tok.doctor import distribution
from agentgym_tok.doctor.distribution import FALSE_ALARM, check_distribution
from agentgym_tok.tokens import Ids


class Hidden(Toy):
    """Mix in what stands in a `generation_config`."""

    def __init__(self, **hidden: float) -> None:
        self.hidden = hidden

    def sampling(self, request: Request) -> Sampling:
        return request.sampling.model_copy(update=self.hidden)


class MinP(Toy):
    def bent(self, logits: Floats) -> Floats:
        return np.where(logits < logits.max() + math.log(0.2), -1e9, logits)


class Reseeded(Toy):
    """A sound engine with other luck."""

    def __init__(self, luck: int) -> None:
        self.luck = luck

    def seed(self, request: Request) -> int:
        return request.seed + 10_000 * self.luck


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        ({"temperature": 0.7}, "temperature=0.7"),
        ({"temperature": 1.2}, "temperature=1.2"),
        ({"top_p": 0.95}, "top_p=0.95"),
        ({"temperature": 0.6, "top_k": 20, "top_p": 0.95}, "temperature=0.6, top_p=0.95, top_k=20"),
    ],
)
def test_a_hidden_setting_is_found_and_named_by_the_reference(hidden: dict[str, float], named: str) -> None:
    found = check_distribution(patient(Hidden(**hidden)))
    assert found.status == "failed"
    assert f"look drawn with {named}," in found.found
    assert "--generation-config vllm" in found.advice


@pytest.mark.parametrize("policy", [Hidden(temperature=0.6), Hidden(top_k=20), Hidden(top_p=0.5), MinP()])
def test_a_narrow_distribution_is_found_by_the_engines_own_log_probabilities(policy: Toy) -> None:
    found = check_distribution(patient(policy, reference=False))
    assert found.status == "failed"
    assert "top_k, top_p, min_p or a temperature below 1" in found.found
    assert "--generation-config vllm" in found.advice
    assert found.figures["chance"] < FALSE_ALARM


def test_min_p_is_found_by_the_reference_though_nobody_names_it() -> None:
    assert check_distribution(patient(MinP())).status == "failed"


def test_the_evidence_is_the_mean_of_the_likelihood_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    for impossible in range(3):
        hidden = (Sampling(), *(Sampling(top_k=1 + place) for place in range(impossible)))
        monkeypatch.setattr(distribution, "_HIDDEN", hidden)
        found = check_distribution(patient(Toy()))
        assert found.figures["evidence"] == pytest.approx(-math.log(1 + impossible))
        assert found.status == "ok"


@pytest.mark.parametrize("luck", range(2))
@pytest.mark.parametrize("reference", [True, False])
def test_a_sound_engine_passes_whatever_its_luck(luck: int, reference: bool) -> None:
    found = check_distribution(patient(Reseeded(luck), reference=reference))
    assert found.status == "ok", found.found
    assert reference is ("evidence" in found.figures)


def test_log_probabilities_of_other_places_add_up_to_too_much() -> None:
    class Lies(Toy):
        def logged(self, logprobs: list[float]) -> list[float]:
            return [nats / 3 for nats in logprobs]

    found = check_distribution(patient(Lies(), reference=False))
    assert (found.status, "add up to" in found.found) == ("failed", True)


def test_what_cannot_be_seen_is_skipped() -> None:
    class Processed(Toy):
        kind = "processed"

    class Certain(Toy):
        def logits(self, ids_T: Ids) -> Floats:
            return super().logits(ids_T) * 1000

    found = check_distribution(patient(Processed(), reference=False))
    assert (found.status, "--reference" in found.advice) == ("skipped", True)
    assert check_distribution(patient(Certain(), reference=False)).status == "skipped"


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.data())
@settings(max_examples=80)
def test_the_chance_is_twice_a_binomial_tail(draws: int, mass: float, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, draws))
    chance = distribution._two_sided(hits, draws, mass)
    assert 0 <= chance <= 1
    # Outcomes that are as unlikely or more, on either side, together have at most this chance.
    below = [count for count in range(draws + 1) if distribution._two_sided(count, draws, mass) <= chance]
    weights = [math.comb(draws, count) * mass**count * (1 - mass) ** (draws - count) for count in below]
    assert sum(weights) <= chance * (1 + 1e-9)


@pytest.mark.deep
def test_a_sound_engine_passes_three_hundred_times() -> None:
    failed = 0
    for luck in range(1, 301):
        failed += check_distribution(patient(Reseeded(luck), reference=False)).status == "failed"
    assert failed == 0
