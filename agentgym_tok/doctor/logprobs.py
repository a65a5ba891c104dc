"""Are the log-probabilities those of the ids that were drawn, and of the kind that they are called?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped, warning
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, Scores

__all__ = ["check_logprobs"]

_EQUAL = 1e-4
"""Nats: float32 engines agree to about 3e-5 with transformers."""
_NEAR = 1e-2
"""Nats, of the mean size: what bfloat16 and quantised weights cost. A mistake costs tenths."""
_NO_REFERENCE = "give the same weights by --reference hf:PATH, to compare with what transformers computes"
_PRECISION = "load both in one dtype; for quantised weights expect this, and correct for it by importance weights"


@dataclass(frozen=True, slots=True)
class _Turn:
    logged_T: NDArray[np.float64]
    kind: str
    scores: Scores

    def sizes(self, kind: str, shift: int = 0) -> NDArray[np.float64]:
        """Return |logged - scored|, each logged value beside the score of `shift` places later."""
        scored_T = (self.scores.raw_S if kind == "raw" else self.scores.processed_S).astype(np.float64)
        logged_T = self.logged_T[max(0, -shift) : len(scored_T) - max(0, shift)]
        sizes_T: NDArray[np.float64] = np.abs(logged_T - scored_T[max(0, shift) : len(scored_T) - max(0, -shift)])
        return sizes_T


def check_logprobs(patient: Patient) -> Finding:
    """Compare with the reference, on turns drawn at temperature 1, at 0, and under all parameters."""
    contexts = patient.contexts
    asked = [
        *(patient.request(ids_T, max_tokens=16) for ids_T in contexts),
        *(patient.request(ids_T, max_tokens=16, temperature=0) for ids_T in contexts[:2]),
        *(patient.request(ids_T, max_tokens=16, temperature=0.7, top_k=30, top_p=0.9) for ids_T in contexts[:6]),
    ]
    turns = patient.ask(asked)
    kinds = Counter(turn.logprobs for turn in turns if len(turn.ids_T))
    if not kinds or set(kinds) == {"missing"}:
        advice = "RL trains no such turn: have the engine return them (vLLM does; a function returns (ids, logprobs))"
        return warning("the policy returns no log-probabilities", advice)
    if "sentinel" in kinds or "missing" in kinds:
        bad = kinds["sentinel"] + kinds["missing"]
        what = f"{bad} of {len(turns)} turns hold a stand-in such as -9999, or no log-probability"
        return failed(what, "look into the engine's version: RL cannot train these turns", turns=bad)
    kind = " and ".join(sorted(kinds))
    if patient.reference is None:
        return skipped(f"{kind}; nothing to compare with", _NO_REFERENCE)
    return _judged([request.ids_T for request in asked], turns, patient, kind)


def _judged(contexts: Sequence[Ids], turns: Sequence[Completion], patient: Patient, kind: str) -> Finding:
    pairs = [(ids_T, turn) for ids_T, turn in zip(contexts, turns, strict=True) if len(turn.ids_T)]
    scores = patient.scores([ids_T for ids_T, _ in pairs], [turn for _, turn in pairs])
    scored = [
        _Turn(turn.logprobs_T.astype(np.float64), turn.logprobs, score)
        for (_, turn), score in zip(pairs, scores, strict=True)
        if turn.logprobs_T is not None
    ]
    impossible = sum(int(np.isneginf(one.scores.processed_S).sum()) for one in scored)
    tokens = sum(len(one.logged_T) for one in scored)
    sizes_S = np.concatenate([one.sizes(one.kind) for one in scored])
    finite_S = sizes_S[np.isfinite(sizes_S)]
    largest, mean = float(finite_S.max(initial=0.0)), float(finite_S.mean()) if len(finite_S) else 0.0
    figures = {"tokens": tokens, "largest": largest, "mean": mean, "impossible": impossible}
    found = f"{kind}; {tokens} tokens differ by at most {largest:.1e} nats, {mean:.1e} on average"
    named = _named(scored) if mean > _NEAR or impossible else None
    if named is not None:
        return failed(f"{found}: {named[0]}", named[1], **figures)
    # A near tie at the border of top-k or top-p falls to either side.
    if impossible > 0.01 * tokens:
        what = f"{kind}; {impossible} of {tokens} ids could not have been drawn under the temperature, top_k and top_p"
        return failed(what, "the engine ignores sampling parameters, or has other weights", **figures)
    if largest <= _EQUAL:
        return ok(found, **figures)
    if mean <= _NEAR:
        return warning(found, _PRECISION, **figures)
    advice = "check that both have the same weights, and that nothing scales, quantises or steers the served ones"
    return failed(found, advice, **figures)


def _named(turns: Sequence[_Turn]) -> tuple[str, str] | None:
    """Return the mistake under which the difference vanishes."""
    for shift, word in ((1, "next"), (-1, "previous")):
        if _vanishes([one.sizes(one.kind, shift) for one in turns]):
            advice = "the policy is off by one: the log-probability at place t must be that of the id at place t"
            return f"they are those of the {word} id", advice
    other = {"raw": "processed", "processed": "raw"}
    if _vanishes([one.sizes(other[one.kind]) for one in turns]):
        called, are = turns[-1].kind, other[turns[-1].kind]
        advice = f"say logprobs={are!r} in the Completion, or set vLLM's --logprobs-mode to {called}_logprobs"
        return f"they are called {called} and are {are}", advice
    return None


def _vanishes(sizes: Sequence[NDArray[np.float64]]) -> bool:
    sizes_S = np.concatenate(sizes)
    return bool(len(sizes_S)) and bool(np.isfinite(sizes_S).all()) and float(sizes_S.mean()) <= _NEAR
