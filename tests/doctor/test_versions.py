"""Weight versions: ids without one are found, where other ids have one."""

from dataclasses import replace

import pytest
from toy import Toy, patient

from agentgym_tok import Completion, Request
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.doctor.versions import check_versions
from agentgym_tok.policies import BasePolicy


class Gap(Toy):
    def answer(self, request: Request) -> Completion:
        turn = super().answer(request)
        end = len(turn.ids_T)
        return replace(turn, weight_versions=(("a", 0, 2), ("b", 3, end)))


class Short(Toy):
    def answer(self, request: Request) -> Completion:
        return replace(super().answer(request), weight_versions=(("a", 0, 2),))


class Sometimes(Toy):
    def answer(self, request: Request) -> Completion:
        turn = super().answer(request)
        return turn if request.seed % 2 else replace(turn, weight_versions=())


class Never(Toy):
    def answer(self, request: Request) -> Completion:
        return replace(super().answer(request), weight_versions=())


class Update(Toy):
    def answer(self, request: Request) -> Completion:
        turn = super().answer(request)
        return replace(turn, weight_versions=(("a", 0, 2), ("b", 2, len(turn.ids_T))))


def asked(policy: BasePolicy) -> Patient:
    made = patient(policy)
    made.ask([made.request(ids_T) for ids_T in made.contexts[:2]])
    return made


@pytest.mark.parametrize("policy", [Gap(), Short(), Sometimes()])
def test_ids_without_a_version_are_found(policy: Toy) -> None:
    found = check_versions(asked(policy))
    assert (found.status, "leave some out" in found.found) == ("failed", True)
    assert "Completion.weight_versions" in found.advice


def test_versions_that_cover_all_ids_are_listed_and_none_at_all_is_no_fault() -> None:
    assert check_versions(asked(Toy())).found.endswith("their weights: 1")
    assert check_versions(asked(Update())).found.endswith("their weights: a, b")
    assert check_versions(asked(Never())).status == "skipped"
