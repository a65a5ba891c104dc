"""Is a streamed turn the same turn?"""

from collections.abc import Sequence

import numpy as np

from agentgym_tok.doctor.finding import Finding, failed, ok, warning
from agentgym_tok.doctor.parting import parting, partings, shown_partings
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.types import Completion, Delta

__all__ = ["check_streaming"]

_LOSES = "look at what buffers or cuts the stream between here and the engine"


def check_streaming(patient: Patient) -> Finding:
    """Stream turns, join their pieces, and draw the same turns whole."""
    contexts = patient.contexts[:3]
    streamed, pieces = [], 0
    asked = [patient.request(ids_T) for ids_T in contexts]
    for request in asked:
        told = patient.stream(request)
        wrong = _wrong(told)
        if wrong is not None:
            return failed(wrong, _LOSES)
        pieces += len(told)
        streamed.append(_last(told))
    patient.turns += streamed
    whole = patient.ask_alone(asked)
    parted = partings(zip(streamed, whole, strict=True))
    if len(parted) == len(contexts) or (parted and patient.policy.deterministic):
        what = f"{shown_partings(parted, len(contexts))} from those drawn whole with the same seed"
        return failed(what, "the stream gets other parameters than the whole turn, or the seed is ignored (see seeds)")
    if parted:
        advice = "rounding differs from run to run; each turn is still whole"
        return warning(f"{shown_partings(parted, len(contexts))} from those drawn whole", advice)
    return ok(f"{len(contexts)} streamed turns, {pieces} pieces, equal those drawn whole")


def _last(told: Sequence[Delta]) -> Completion:
    completion = told[-1].completion
    assert completion is not None
    return completion


def _wrong(told: Sequence[Delta]) -> str | None:
    """Return what is wrong with the pieces of a turn."""
    if not told or [place for place, piece in enumerate(told) if piece.completion is not None] != [len(told) - 1]:
        return "the stream does not end in its completion, once"
    ids_T = np.concatenate([piece.ids_T for piece in told])
    place = parting(ids_T, _last(told).ids_T)
    if place is not None:
        return f"{len(ids_T)} streamed ids, and the turn of {len(_last(told).ids_T)} is another from token {place} on"
    return None
