"""Are the sampling parameters in force those that were asked for?"""

from collections.abc import Sequence

import numpy as np

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped
from agentgym_tok.doctor.parting import parting
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.types import Completion, Sampling

__all__ = ["check_greedy", "check_limits", "check_top_k"]

_TIE = 0.25
"""Nats between the likeliest two tokens below which rounding may choose either."""
_COLD = 0.01
"""A temperature at which a score is the distance to the likeliest token, divided by it."""
_PENALTY = "a repetition or presence penalty, a logit bias or min_tokens is in force: override generation_config"
_DRAWS = 24


def check_greedy(patient: Patient) -> Finding:
    """Temperature 0 takes the likeliest token, whatever the seed, as top_k=1 does."""
    contexts = patient.contexts[:4]
    cold = patient.ask([patient.request(ids_T, temperature=0) for ids_T in contexts])
    again = patient.ask([patient.request(ids_T, temperature=0) for ids_T in contexts])
    single = patient.ask([patient.request(ids_T, top_k=1) for ids_T in contexts])
    if patient.reference is not None:
        largest = max(map(_distance, _colder_than_cold(patient, cold)))
        if largest > _TIE:
            what = f"a token of temperature 0 is {largest:.2f} nats less likely than the reference's likeliest"
            return failed(what, f"{_PENALTY}; or the weights are not the reference's", distance=largest)
    for turns, asked, advice in (
        (again, "another seed", "temperature 0 is not sent on, or replaced by the engine's own"),
        (single, "top_k=1", "top_k is not sent on, or a penalty is in force with one of both"),
    ):
        for ids_T, a, b in zip(contexts, cold, turns, strict=True):
            place = parting(a.ids_T, b.ids_T)
            if place is not None and not _tied(patient, ids_T, a, b, place):
                what = f"temperature 0 and {asked} part at token {place}"
                return failed(what, f"{advice}; have the engine take every sampling parameter from the request")
    unseen = "" if patient.reference is not None else "; a penalty would not be seen without --reference"
    return ok(f"{len(contexts)} turns are equal with another seed and with top_k=1{unseen}")


def _colder_than_cold(patient: Patient, turns: Sequence[Completion]) -> list[np.ndarray]:
    scores = patient.scores(patient.contexts[: len(turns)], turns, Sampling(temperature=_COLD))
    return [one.processed_S for one in scores]


def _distance(cold_S: np.ndarray) -> float:
    """Return how much less likely than the likeliest the worst token is, in nats."""
    return float(-_COLD * cold_S.min(initial=0.0))


def _tied(patient: Patient, ids_T: np.ndarray, a: Completion, b: Completion, place: int) -> bool:
    if place >= min(len(a.ids_T), len(b.ids_T)):
        return False
    if patient.reference is not None:
        (scores,) = patient.scores([ids_T], [b], Sampling(temperature=_COLD))
        return _distance(scores.processed_S[: place + 1]) <= _TIE
    if a.logprobs_T is None or b.logprobs_T is None or {a.logprobs, b.logprobs} != {"raw"}:
        return False
    return abs(float(a.logprobs_T[place]) - float(b.logprobs_T[place])) <= _TIE


def check_top_k(patient: Patient) -> Finding:
    """With top_k=2, two different ids are drawn at most."""
    ids_T, _ = patient.flat
    free = patient.ask([patient.request(ids_T, max_tokens=1) for _ in range(_DRAWS)])
    bound = patient.ask([patient.request(ids_T, max_tokens=1, top_k=2) for _ in range(_DRAWS)])
    without, kept = (len({turn.ids_T.tobytes() for turn in turns}) for turns in (free, bound))
    if kept > 2:
        what = f"{kept} different ids in {_DRAWS} draws with top_k=2"
        return failed(what, "the engine ignores top_k: it must take it from the request", different=kept)
    if without <= 2:
        return skipped(f"without top_k there are no more than {without} different ids in {_DRAWS} draws either")
    found = f"{kept} different ids in {_DRAWS} draws with top_k=2, {without} without"
    return ok(found, different=kept, without=without)


def check_limits(patient: Patient) -> Finding:
    """A turn that reaches max_tokens has exactly that many ids, and no turn has more."""
    lengths = (1, 2, 7, 30)
    asked = [patient.request(ids_T, max_tokens=length) for ids_T in patient.contexts[:3] for length in lengths]
    turns = patient.ask(asked)
    for request, turn in zip(asked, turns, strict=True):
        wanted, got = request.sampling.max_tokens, len(turn.ids_T)
        short = turn.finish_reason == "length" and got < wanted
        if got > wanted or short:
            what = f"{got} ids for max_tokens={wanted}, finish reason {turn.finish_reason}"
            return failed(what, "the engine counts otherwise, or a gateway sets a limit of its own")
    full = sum(turn.finish_reason == "length" for turn in turns)
    if not full:
        return skipped("every turn ended before its limit")
    return ok(f"{full} turns that reached max_tokens have exactly that many ids")
