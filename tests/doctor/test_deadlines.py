"""Deadlines: an engine that looks at none, and one that hangs, are found; the examination does not hang with it."""

import threading
from collections.abc import Iterator

import pytest
from toy import Toy, patient

from agentgym_tok import Completion, Request
from agentgym_tok.doctor import deadlines
from agentgym_tok.doctor.deadlines import check_deadlines
from agentgym_tok.policies import BasePolicy


class Patient(Toy):
    """Answer however late."""

    def answer(self, request: Request) -> Completion:
        return super().answer(Request(request.ids_T, request.sampling, request.seed))


class InProcess(BasePolicy):
    """Answer however late, without a wire."""

    def answer(self, request: Request) -> Completion:
        return Patient().answer(request)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_an_error_in_time_passes() -> None:
    assert check_deadlines(patient(Toy())).status == "ok"


def test_an_answer_after_the_deadline_is_a_fault_of_an_engine_only() -> None:
    found = check_deadlines(patient(Patient()))
    assert (found.status, "Request.deadline" in found.advice) == ("failed", True)
    assert check_deadlines(patient(InProcess())).status == "skipped"


def test_an_engine_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    class Hangs(Toy):
        def answer(self, request: Request) -> Completion:
            gate.wait()
            return super().answer(request)

    monkeypatch.setattr(deadlines, "_GRACE_S", 0.05)
    found = check_deadlines(patient(Hangs()))
    assert (found.status, "no answer 0.05 s after" in found.found) == ("failed", True)
