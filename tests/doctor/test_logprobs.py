"""Log-probabilities: agreement is measured, and each known mistake is called by its name."""

from dataclasses import replace

import numpy as np
import pytest
from toy import Floats, Toy, patient

from agentgym_tok import Completion, Request
from agentgym_tok.doctor.logprobs import check_logprobs
from agentgym_tok.tokens import Ids
from agentgym_tok.types import LogprobKind


class Shifted(Toy):
    def logged(self, logprobs: list[float]) -> list[float]:
        return [*logprobs[1:], -1.0]


class Behind(Toy):
    def logged(self, logprobs: list[float]) -> list[float]:
        return [-1.0, *logprobs[:-1]]


class Called(Toy):
    """Say another kind than it returns."""

    said: LogprobKind = "processed"

    def answer(self, request: Request) -> Completion:
        return replace(super().answer(request), logprobs=self.said)


class CalledRaw(Called):
    kind, said = "processed", "raw"


class Processed(Toy):
    kind = "processed"


class OtherWeights(Toy):
    def logits(self, ids_T: Ids) -> Floats:
        return super().logits(ids_T) * 1.2


class Rounded(Toy):
    def logged(self, logprobs: list[float]) -> list[float]:
        return [nats * (1 - 1e-3) for nats in logprobs]


class Sentinel(Toy):
    def answer(self, request: Request) -> Completion:
        return replace(super().answer(request), logprobs="sentinel")


class IgnoresTopK(Toy):
    def sampling(self, request: Request) -> object:  # type: ignore[override]
        return request.sampling.model_copy(update={"top_k": 0, "top_p": 1.0})


@pytest.mark.parametrize("policy", [Toy(), Processed()])
def test_an_engine_that_agrees_passes_with_its_figures(policy: Toy) -> None:
    found = check_logprobs(patient(policy))
    assert found.status == "ok"
    assert found.found.startswith(policy.kind)
    assert found.figures["mean"] <= found.figures["largest"] < 1e-5
    assert found.figures["tokens"] > 200


@pytest.mark.parametrize(
    ("policy", "words", "advice"),
    [
        (Shifted(), "those of the next id", "off by one"),
        (Behind(), "those of the previous id", "off by one"),
        (CalledRaw(), "called raw and are processed", "logprobs='processed'"),
        (Called(), "called processed and are raw", "logprobs='raw'"),
        (OtherWeights(), "nats", "same weights"),
        (Sentinel(), "stand-in such as -9999", "cannot train"),
        (IgnoresTopK(), "could not have been drawn", "ignores sampling parameters"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Toy) else "",
)
def test_each_mistake_is_called_by_its_name(policy: Toy, words: str, advice: str) -> None:
    found = check_logprobs(patient(policy))
    assert found.status == "failed"
    assert words in found.found
    assert advice in found.advice


def test_rounding_is_a_warning_about_dtypes() -> None:
    found = check_logprobs(patient(Rounded()))
    assert (found.status, "dtype" in found.advice) == ("warning", True)
    assert 1e-4 < found.figures["largest"] < 0.1
    assert np.isclose(found.figures["mean"], 7e-3, rtol=0.5)


def test_what_cannot_be_compared_says_its_kind_and_how_to_compare() -> None:
    found = check_logprobs(patient(Toy(), reference=False))
    assert (found.status, found.found.startswith("raw"), "--reference" in found.advice) == ("skipped", True, True)

    class Silent(Toy):
        def answer(self, request: Request) -> Completion:
            return replace(super().answer(request), logprobs_T=None, logprobs="missing")

    class Forgets(Toy):
        def answer(self, request: Request) -> Completion:
            turn = super().answer(request)
            return turn if request.seed % 5 else replace(turn, logprobs_T=None, logprobs="missing")

    assert check_logprobs(patient(Silent())).status == "warning"
    assert check_logprobs(patient(Forgets())).status == "failed"
