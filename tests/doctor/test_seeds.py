"""Seeds: one that is ignored, and one of the engine's own, are both found."""

import itertools

from toy import Floats, Toy, patient

from agentgym_tok import Request
from agentgym_tok.doctor.seeds import check_seeds
from agentgym_tok.tokens import Ids


class Ignored(Toy):
    deterministic = False

    def __init__(self) -> None:
        self.count = itertools.count()

    def seed(self, request: Request) -> int:
        return next(self.count)


class Own(Toy):
    def seed(self, request: Request) -> int:
        return 7


class Drifts(Toy):
    """Part once, late, as rounding makes engines do."""

    deterministic = False

    def __init__(self) -> None:
        self.seen = 0

    def bent(self, logits: Floats) -> Floats:
        self.seen += 1
        return logits[::-1] if self.seen == 20 else logits


def test_seeds_that_decide_pass() -> None:
    assert check_seeds(patient(Toy())).status == "ok"


def test_an_ignored_seed_is_found() -> None:
    found = check_seeds(patient(Ignored()))
    assert (found.status, "equal seeds: 3 of 3 turns part" in found.found) == ("failed", True)
    assert "send it with each request" in found.advice


def test_a_seed_of_the_engines_own_is_found() -> None:
    found = check_seeds(patient(Own()))
    assert (found.status, "three seeds gave the same turns" in found.found) == ("failed", True)
    assert "of its own" in found.advice


def test_a_late_difference_is_a_warning_and_a_broken_promise_a_failure() -> None:
    found = check_seeds(patient(Drifts()))
    assert (found.status, "1 of 3 turns part, at token 7" in found.found) == ("warning", True)
    promised = Drifts()
    promised.deterministic = True
    assert check_seeds(patient(promised)).status == "failed"


def test_a_certain_model_says_nothing_of_its_seeds() -> None:
    class Certain(Toy):
        def logits(self, ids_T: Ids) -> Floats:
            return super().logits(ids_T) * 1000

    found = check_seeds(patient(Certain()))
    assert (found.status, "too certain" in found.found) == ("skipped", True)
