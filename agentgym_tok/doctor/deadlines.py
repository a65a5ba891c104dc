"""Does a request whose time is over come back?"""

import threading
import time
from dataclasses import replace

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.types import Completion

__all__ = ["check_deadlines"]

_GRACE_S = 20.0
_HANGS = "a policy must give up at Request.deadline and put an error in the turn's place"


def check_deadlines(patient: Patient) -> Finding:
    """Ask with a deadline that has passed, and an engine also with one that passes in the midst of a long turn."""
    behind_a_wire = hasattr(patient.policy, "describe")
    asked = [replace(patient.request(patient.contexts[0], max_tokens=4), deadline=time.time() - 1)]
    if behind_a_wire:
        asked.append(replace(patient.request(patient.contexts[0], max_tokens=256), deadline=time.time() + 0.05))
    answers: list[Completion | Exception] = []
    # A thread of its own, that nobody waits for: a policy that hangs must not take the examination along.
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.extend(patient.answers(asked))
        except Exception as error:  # noqa: BLE001  # raised again below
            errors.append(error)

    started = time.monotonic()
    thread = threading.Thread(target=ask, name="doctor", daemon=True)
    thread.start()
    thread.join(_GRACE_S)
    seconds = time.monotonic() - started
    if thread.is_alive():
        return failed(f"no answer {_GRACE_S:g} s after the deadline", _HANGS)
    if errors:
        raise errors[0]
    if isinstance(answers[0], Completion):
        if behind_a_wire:
            what = "a request whose deadline had passed was answered"
            return failed(what, "the engine's client must look at Request.deadline")
        return skipped("answered after its deadline: a policy in this process need not look at it")
    return ok(f"a deadline that had passed gave an error within {seconds:.1f} s", seconds=seconds)
