"""Does a turn end where it should: at a stop token, with a stop string, or where no room is left?"""

import numpy as np

from agentgym_tok.doctor.contexts import closing
from agentgym_tok.doctor.finding import Finding, failed, ok, skipped
from agentgym_tok.doctor.parting import parting
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Completion

__all__ = ["check_room", "check_stop", "check_stop_strings"]

_BUDGET = 48
_LONGEST = 2**24
"""Policies that know no limit may name a huge one."""
_WITH_THE_STOP = (
    "the engine must return the stop token as the turn's last id, and end there (see the chat format's ends)"
)


def check_stop(patient: Patient) -> Finding:
    """Look for turns that end, and see that they end in a stop id and that none goes on behind one."""
    stop_ids = patient.chat.stop_ids
    contexts = [*closing(patient.chat), *patient.contexts[:6]]
    asked = [patient.request(ids_T, max_tokens=_BUDGET, temperature=0) for ids_T in contexts[:4]]
    asked += [patient.request(ids_T, max_tokens=_BUDGET) for ids_T in contexts]
    turns = patient.ask(asked)
    stopped = [turn for turn in turns if turn.finish_reason == "stop"]
    for turn in turns:
        inner = [index for index in turn.ids_T[:-1].tolist() if index in stop_ids]
        if inner:
            what = f"a turn goes on behind its stop token {_named(patient, inner[0])}"
            return failed(what, _WITH_THE_STOP)
    for turn in stopped:
        if not len(turn.ids_T) or int(turn.ids_T[-1]) not in stop_ids:
            last = _named(patient, int(turn.ids_T[-1])) if len(turn.ids_T) else "nothing"
            what = f"a turn stopped at {last}, which is no stop token of the chat format"
            return failed(what, f"{_WITH_THE_STOP}; or a hidden stop token or string is in force")
    missed = _missed(patient, contexts[:4], turns[:4])
    if missed:
        return missed
    if not stopped:
        return skipped(f"none of {len(turns)} turns ended within {_BUDGET} tokens")
    return ok(f"{len(stopped)} of {len(turns)} turns ended, each in its stop token")


def _missed(patient: Patient, contexts: list[Ids], turns: list[Completion]) -> Finding | None:
    """Find a turn that would rather have stopped than gone on, by the reference."""
    if patient.reference is None:
        return None
    stop_T = as_ids(patient.chat.stop_ids[:1])
    for ids_T, turn in zip(contexts, turns, strict=True):
        if not len(turn.ids_T) or int(turn.ids_T[0]) in patient.chat.stop_ids:
            continue
        (stop, first) = patient.scores([ids_T, ids_T], [Completion(stop_T), Completion(turn.ids_T[:1])])
        if float(stop.raw_S[0]) > float(first.raw_S[0]) + 0.25:
            what = "the likeliest token is the stop token, and temperature 0 took another"
            return failed(what, "the engine suppresses the stop token: min_tokens or a logit bias is in force")
    return None


def _named(patient: Patient, index: int) -> str:
    return f"{index} {patient.chat.token_text(index)!r}"


def check_stop_strings(patient: Patient) -> Finding:
    """Draw a turn twice, the second time with a stop string that stands in the midst of it."""
    ids_T, _ = patient.flat
    free = patient.request(ids_T, max_tokens=24)
    (turn,) = patient.ask([free])
    stop = next((text for text in map(patient.chat.token_text, turn.ids_T[4:-1].tolist()) if _can_stop(text)), None)
    if stop is None:
        return skipped("no turn holds a text to stop at")
    (stopped,) = patient.ask([patient.request(ids_T, seed=free.seed, max_tokens=24, stop=(stop,))])
    ends = range(1, len(turn.ids_T))
    end = next((end for end in ends if stop in patient.chat.decode(turn.ids_T[:end])), len(turn.ids_T))
    place = parting(stopped.ids_T, turn.ids_T[:end])
    if place is None and stopped.finish_reason == "stop":
        return ok(f"a turn ends with the token that completes {stop!r}, and keeps it")
    if place is not None and place < min(end, len(stopped.ids_T)):
        return skipped("equal seeds draw other turns (see seeds), so that the end could not be told")
    what = f"{len(stopped.ids_T)} ids, finish reason {stopped.finish_reason}, where {end} complete {stop!r}"
    return failed(what, "the engine must look for Sampling.stop in the text, and keep the token that completes it")


def _can_stop(text: str) -> bool:
    return bool(text.strip()) and "\ufffd" not in text and not text.startswith("<")


def check_room(patient: Patient) -> Finding:
    """A context that leaves no room gives a truncated turn, and no error."""
    limit = getattr(patient.policy, "context_limit", None)
    if limit is None or limit > _LONGEST:
        return skipped("the policy does not say how long a context may be")
    full_T = as_ids(np.resize(patient.contexts[0], limit))
    (answer,) = patient.answers([patient.request(full_T)])
    if isinstance(answer, Exception):
        what = f"a context of {limit} ids, which leaves no room, is an error: {answer}"
        return failed(what, "return a Completion without ids and finish_reason='truncated'")
    if len(answer.ids_T) or answer.finish_reason != "truncated":
        what = f"a full context of {limit} ids gives {len(answer.ids_T)} ids, finish reason {answer.finish_reason}"
        return failed(what, "the engine cuts the context: have it refuse longer ones")
    return ok(f"a full context of {limit} ids gives an empty turn, truncated")
