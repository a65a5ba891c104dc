"""Are tokens drawn from the model's whole distribution, when that is asked for?

With a reference: a likelihood ratio. For each setting that engines and models are known to hide, the probability of the
draws under that setting is divided by their probability under the model; under the model itself the expectation of
such a ratio, and of the mean of several, is 1, whatever the model, so that by Markov's inequality it passes
1 / FALSE_ALARM at most once in that many examinations (Ville, 1939, for draws that follow each other).

Without one, by the engine's own log-probabilities: the ids that a first half of draws found hold a known mass of the
distribution, so that the number of later draws among them is binomial, exactly.
"""

import math
from collections.abc import Sequence

import numpy as np

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.types import Completion, Sampling

__all__ = ["FALSE_ALARM", "check_distribution"]

FALSE_ALARM = 5e-5
"""Probability that an engine without fault fails this check."""

_HIDDEN = (
    *(Sampling(temperature=temperature) for temperature in (0.6, 0.7, 0.8, 0.9, 1.2)),
    *(Sampling(top_k=top_k) for top_k in (20, 40, 50, 100)),
    *(Sampling(top_p=top_p) for top_p in (0.8, 0.9, 0.95)),
    Sampling(temperature=0.6, top_k=20, top_p=0.95),  # generation_config of Qwen3
    Sampling(temperature=0.7, top_k=20, top_p=0.8),  # of Qwen2.5
    Sampling(temperature=0.8, top_k=40, top_p=0.95),  # llama.cpp
    Sampling(temperature=0.6, top_p=0.9),  # generation_config of Llama 3
)
"""What is set where nobody asked for it."""

_HALF = 80
_OVERRIDE = (
    "something else sets how tokens are drawn, such as the model's generation_config: start vLLM with "
    "--generation-config vllm, and have gateways pass every sampling parameter on"
)


def check_distribution(patient: Patient) -> Finding:
    """Draw at temperature 1, without top-k and top-p, and look for another temperature and for ids that never come."""
    return _by_halves(patient) if patient.reference is None else _by_the_reference(patient)


def _by_the_reference(patient: Patient) -> Finding:
    contexts = [ids_T for ids_T in patient.contexts for _ in range(2)]
    turns = patient.ask([patient.request(ids_T, max_tokens=24) for ids_T in contexts])
    tokens = sum(len(turn.ids_T) for turn in turns)
    ratios = {_shown(hidden): _log_ratio(patient, hidden, contexts, turns) for hidden in _HIDDEN}
    culprit = max(ratios, key=lambda name: ratios[name])
    evidence = ratios[culprit] + math.log(sum(math.exp(ratio - ratios[culprit]) for ratio in ratios.values()))
    evidence -= math.log(len(ratios))
    figures = {"tokens": tokens, "evidence": evidence, "limit": -math.log(FALSE_ALARM)}
    if evidence > -math.log(FALSE_ALARM):
        found = f"{tokens} tokens look drawn with {culprit}, e^{ratios[culprit]:.0f} times more likely than without"
        return failed(found, _OVERRIDE, **figures)
    return ok(f"{tokens} tokens show no hidden temperature, top_k or top_p (evidence e^{evidence:.1f})", **figures)


def _log_ratio(
    patient: Patient, hidden: Sampling, contexts: Sequence[np.ndarray], turns: Sequence[Completion]
) -> float:
    """Return log (probability under the hidden setting / under the model) of all draws; -1e9 where impossible."""
    scores = patient.scores(contexts, turns, hidden)
    ratio = sum(float((one.processed_S.astype(np.float64) - one.raw_S).sum()) for one in scores)
    return max(ratio, -1e9)


def _by_halves(patient: Patient) -> Finding:
    ids_T, probes = patient.flat
    if any(turn.logprobs != "raw" for turn in probes):
        why = f"log-probabilities are {probes[0].logprobs}, not the model's own"
        return skipped(f"{why}: what never comes cannot be seen", "give the same weights by --reference hf:PATH")
    turns = patient.ask([patient.request(ids_T, max_tokens=1) for _ in range(2 * _HALF)])
    draws = [(int(turn.ids_T[0]), float(turn.logprobs_T[0])) for turn in turns if turn.logprobs_T is not None]
    if len(draws) < len(turns):
        return failed("some draws have no log-probability, though others have", "look into the engine's log")
    masses = {index: math.exp(logprob) for index, logprob in draws[:_HALF]}
    mass = sum(masses.values())
    if mass > 1.01:
        advice = "they are of other ids, or of other places: see the check of log-probabilities"
        return failed(f"the probabilities of {len(masses)} different ids add up to {mass:.2f}", advice, mass=mass)
    if mass > 0.99:
        advice = "give the same weights by --reference hf:PATH"
        return skipped(f"after all contexts that were tried, {len(masses)} ids hold {100 * mass:.1f} %", advice)
    hits = sum(index in masses for index, _ in draws[_HALF:])
    chance = _two_sided(hits, _HALF, mass)
    figures = {"mass": mass, "hits": hits, "draws": _HALF, "chance": chance}
    found = f"{len(masses)} ids that hold {100 * mass:.1f} % of the distribution got {hits} of {_HALF} draws"
    if chance < FALSE_ALARM:
        narrow = "top_k, top_p, min_p or a temperature below 1" if hits > mass * _HALF else "a penalty or temperature"
        return failed(f"{found} (chance {chance:.0e}): {narrow} is in force", _OVERRIDE, **figures)
    return ok(f"{found}, as they should", **figures)


def _two_sided(hits: int, draws: int, mass: float) -> float:
    """Return how likely a binomial count at least this far out is, twice the smaller tail."""
    weights = [math.comb(draws, count) * mass**count * (1 - mass) ** (draws - count) for count in range(draws + 1)]
    return min(1.0, 2 * min(sum(weights[: hits + 1]), sum(weights[hits:])))


def _shown(sampling: Sampling) -> str:
    """Return the parameters that differ from none."""
    named = sampling.model_dump(exclude_defaults=True, exclude={"max_tokens"})
    return ", ".join(f"{name}={value:g}" for name, value in named.items())
