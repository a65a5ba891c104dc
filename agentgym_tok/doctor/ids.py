"""Are ids read as they were sent, and returned as they were drawn?"""

import math
from collections.abc import Sequence

import numpy as np

from agentgym_tok.doctor.contexts import split_differently
from agentgym_tok.doctor.finding import Finding, failed, ok, skipped, warning
from agentgym_tok.doctor.parting import parting
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion

__all__ = ["check_ids"]

_READS_TEXT = "use an endpoint that takes ids: start vLLM with --enable-scale-out, or llama.cpp's own server"
_ROUNDING = 1e-5
"""Nats by which the log-probabilities of one context may differ from one pass to the next."""


def check_ids(patient: Patient) -> Finding:
    """Ask with ids that no tokenizer would choose: an engine that reads text in between gives itself away."""
    chat, ids_T = patient.chat, patient.contexts[0]
    turns = patient.ask([patient.request(context_T) for context_T in patient.contexts[:4]])
    inexact = [turn for turn in turns if not turn.ids_exact]
    if len(inexact) == len(turns):
        advice = "use it for evaluation only; to train, serve the model with vLLM or llama.cpp"
        return warning(f"the engine returns no ids, so those of its turns are guessed: {turns[0].note}", advice)
    if inexact:
        return failed(f"{len(inexact)} of {len(turns)} turns have no exact ids: {inexact[0].note}", _READS_TEXT)
    foreign = [index for turn in turns for index in turn.ids_T.tolist() if index >= chat.vocab_size]
    if foreign:
        what = f"ids outside the vocabulary came back, such as {foreign[0]} of {chat.vocab_size}"
        return failed(what, "name the served model's own folder by --chat")
    split_T = split_differently(chat, ids_T)
    if split_T is None:
        return skipped("ids come back as ids; no other ids of the same text were found to try")
    (answer,) = patient.answers([patient.request(split_T, temperature=0)])
    if isinstance(answer, Exception):
        return failed(f"ids that the tokenizer would not choose are refused: {answer}", _READS_TEXT)
    if patient.reference is not None and answer.logprobs == "raw":
        return _by_the_reference(patient, split_T, answer)
    return _by_comparison(patient, split_T, answer)


def _by_the_reference(patient: Patient, split_T: Ids, answer: Completion) -> Finding:
    """Ask after which of the contexts the log-probabilities of the answer are the reference's."""
    read, other = (_distance(patient, ids_T, answer) for ids_T in (split_T, patient.contexts[0]))
    if read < other:
        found = f"ids come back as ids, and {len(split_T)} ids that the tokenizer would not choose are read as sent"
        return ok(found, as_sent=read, as_the_tokenizer_cuts=other)
    if read == other:
        return skipped("ids come back as ids; this model answers all ids of a text alike")
    found = f"the engine cuts the text of its own: the answer fits other ids ({other:.1e} nats away; sent {read:.1e})"
    return failed(found, _READS_TEXT, as_sent=read, as_the_tokenizer_cuts=other)


def _distance(patient: Patient, ids_T: Ids, answer: Completion) -> float:
    assert answer.logprobs_T is not None
    (scores,) = patient.scores([ids_T], [answer])
    return float(np.abs(scores.raw_S - answer.logprobs_T).mean()) if len(answer.ids_T) else 0.0


def _by_comparison(patient: Patient, split_T: Ids, answer: Completion) -> Finding:
    """Compare with the answers to the tokenizer's own ids, and to those of another text."""
    contexts: Sequence[Ids] = (patient.contexts[0], patient.contexts[0], patient.contexts[1])
    asked = [patient.request(ids_T, temperature=0) for ids_T in contexts]
    first, second, other = patient.ask_alone(asked)
    noise, moved = _apart(first, second), _apart(first, answer)
    if noise is None or moved is None:
        if parting(first.ids_T, answer.ids_T) is not None and parting(first.ids_T, second.ids_T) is None:
            return ok("ids come back as ids; other ids of the same text are answered otherwise")
        return skipped("ids come back as ids; without log-probabilities nothing shows which ids were read")
    if noise == math.inf:
        return skipped("ids come back as ids; equal contexts are answered differently at temperature 0")
    limit = 3 * noise + _ROUNDING
    if moved > limit:
        return ok(f"ids come back as ids, and {len(split_T)} ids that the tokenizer would not choose are read as sent")
    if (_apart(first, other) or 0.0) <= limit:
        return skipped("ids come back as ids; the answers do not depend on the context")
    found = "the engine cuts the text of its own: other ids of the same text give the very same log-probabilities"
    return failed(found, _READS_TEXT, noise=noise, moved=moved)


def _apart(a: Completion, b: Completion) -> float | None:
    """Return how far two turns are from each other, in nats; infinite where the ids differ, None where nobody knows."""
    if a.logprobs_T is None or b.logprobs_T is None:
        return None
    if parting(a.ids_T, b.ids_T) is not None:
        return math.inf
    return float(np.abs(a.logprobs_T - b.logprobs_T).max(initial=0.0))
