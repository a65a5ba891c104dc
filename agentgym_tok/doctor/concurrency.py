"""Does every request of many at once get its own answer?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped, warning
from agentgym_tok.doctor.parting import partings, shown_partings
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.types import Completion

__all__ = ["check_concurrency"]

_ROUNDING = 0.02
"""Mean nats that a batch may move log-probabilities by, beside what an engine alone differs from the reference."""
_OWN = "answers must stand in the order of their requests: look at what joins batches between here and the engine"


def check_concurrency(patient: Patient) -> Finding:
    """Ask twelve different requests at once, and then one by one with the same seeds."""
    count = len(patient.contexts)
    asked = [patient.request(ids_T) for ids_T in patient.contexts]
    together = patient.ask(asked)
    alone = patient.ask_alone(asked)
    owners = {turn.ids_T.tobytes(): index for index, turn in enumerate(alone)}
    strangers = [
        index
        for index, turn in enumerate(together)
        if owners.get(turn.ids_T.tobytes(), index) != index and turn.ids_T.tobytes() != alone[index].ids_T.tobytes()
    ]
    if strangers:
        doubled = len({turn.ids_T.tobytes() for turn in together}) < len(owners)
        what = (
            f"{len(strangers)} of {count} answers are {'doubled' if doubled else 'swapped'}: they answer other requests"
        )
        return failed(what, _OWN, strangers=len(strangers))
    parted = partings(zip(together, alone, strict=True))
    if parted and patient.reference is not None:
        own, others = _distances(patient, alone), _distances(patient, together)
        far = int((others > 3 * own.max() + _ROUNDING).sum())
        if far:
            what = f"{far} of {count} answers were drawn after other contexts, by the reference"
            return failed(what, _OWN, strangers=far)
    if parted and patient.policy.deterministic:
        advice = "the policy declares `deterministic` and is not in a batch: do not declare it"
        return failed(shown_partings(parted, count), advice, parted=len(parted))
    if 2 * len(parted) > count:
        return skipped("equal seeds draw other turns (see seeds), so that swapped answers could not be told")
    if parted:
        advice = "rounding depends on the batch; where that matters, use batch-invariant kernels"
        return warning(f"{shown_partings(parted, count)} from those drawn alone", advice, parted=len(parted))
    return ok(f"{count} requests at once gave what they gave one by one")


def _distances(patient: Patient, turns: Sequence[Completion]) -> NDArray[np.float64]:
    """Return each turn's mean distance from the reference after the context that was sent, in nats."""
    scores = patient.scores(patient.contexts, turns)
    distances = [
        np.abs(turn.logprobs_T - (one.raw_S if turn.logprobs == "raw" else one.processed_S)).mean()
        if turn.logprobs_T is not None and len(turn.ids_T)
        else 0.0
        for turn, one in zip(turns, scores, strict=True)
    ]
    return np.array(distances, dtype=np.float64)
