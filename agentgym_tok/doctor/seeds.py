"""Does the seed decide what is drawn?"""

from itertools import pairwise

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped, warning
from agentgym_tok.doctor.parting import partings, shown_partings
from agentgym_tok.doctor.patient import Patient

__all__ = ["check_seeds"]

_SURE = -9.9
"""Log of 5e-5: that other seeds draw the very same turns, by chance."""


def check_seeds(patient: Patient) -> Finding:
    """Ask with equal seeds, one by one, and with different ones."""
    contexts = patient.contexts[:3]
    first = patient.ask_alone([patient.request(ids_T, seed=11) for ids_T in contexts])
    second = patient.ask_alone([patient.request(ids_T, seed=11) for ids_T in contexts])
    others = [patient.ask([patient.request(ids_T, seed=seed) for ids_T in contexts]) for seed in (12, 13)]
    parted = partings(zip(first, second, strict=True))
    if len(parted) == len(contexts) or (parted and patient.policy.deterministic):
        what = f"equal seeds: {shown_partings(parted, len(contexts))}"
        return failed(what, "the engine ignores the seed: send it with each request, or do not declare `deterministic`")
    differ = any(partings(zip(a, b, strict=True)) for a, b in pairwise([first, *others]))
    if not differ:
        nats = [float(turn.logprobs_T.sum()) for turn in others[0] + others[1] if turn.logprobs_T is not None]
        if nats and sum(nats) > _SURE:
            return skipped("the model is too certain: other seeds may well draw the same turns")
        what = "three seeds gave the same turns at temperature 1"
        return failed(
            what, "the engine draws with a seed or a temperature of its own: a group for RL would be one turn"
        )
    if parted:
        advice = "rounding differs from run to run; log-probabilities are still of what was drawn"
        return warning(f"equal seeds: {shown_partings(parted, len(contexts))}", advice)
    return ok("equal seeds gave equal ids, other seeds other ids")
