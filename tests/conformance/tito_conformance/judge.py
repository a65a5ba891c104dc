"""Say what a gateway did with a case, from what arrived at the engine and from what the gateway told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tito_conformance.agent import Received
from tito_conformance.engine import Call
from tito_conformance.models import Model
from tito_conformance.rendering import as_engines_read
from tito_conformance.replies import logprob_of
from tito_conformance.script import Case, Fault, Step, Text, Verdict

__all__ = ["Outcome", "Taken", "judge"]

_ONLY_IN_THE_RECORD: frozenset[Fault] = frozenset({"sentinel", "extra_logprob", "prompt_tail", "stop_id_trimmed"})
_AROUND = 6


@dataclass(frozen=True, slots=True)
class Taken:
    """Hold one step as it went.

    Args:
        step: What was meant.
        messages: What the agent sent.
        tools: The tools that it sent.
        calls: What arrived at the engine.
        received: What the gateway answered.
    """

    step: Step
    messages: Sequence[dict[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    calls: Sequence[Call]
    received: Received


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold a verdict.

    Args:
        verdict: What the gateway did.
        detail: Where and how; empty where everything was prevented.
    """

    verdict: Verdict
    detail: str = ""


def judge(model: Model, case: Case, taken: Sequence[Taken]) -> Outcome:
    """Judge a case; its worst step counts.

    Args:
        model: The model that it ran on.
        case: The case.
        taken: Its steps, as far as they went.
    """
    reported: list[str] = []
    untold: list[str] = []
    past: list[int] | None = None
    excused: set[str] = set()
    tells = any(turn.received.ids is not None for turn in taken)
    for number, turn in enumerate(taken, 1):
        told = set(turn.received.drift)
        if turn.received.error or not turn.calls:
            if turn.calls and turn.step.reply.fault and told & set(case.classes):
                # To whom the engine's answer is none, the conversation ends here.
                reported.append(f"step {number}: refused as {', '.join(sorted(told))}")
                break
            said = turn.received.error or "nothing arrived at the engine"
            return Outcome("failed", f"step {number}: HTTP {turn.received.status}: {said}")
        declared = (told | excused) & set(case.classes)
        faults = [*_prompt_faults(model, turn, past), *_record_faults(model, turn, tells=tells)]
        if turn.step.edited and not declared:
            faults.append("the edit was not declared")
        inexcusable = _edit_faults(model, turn)
        if inexcusable or (faults and not declared):
            other = f" (declared: {', '.join(sorted(told))})" if told else ""
            return Outcome("failed", f"step {number}: {[*inexcusable, *faults][0]}{other}")
        if told and not (faults or excused or turn.step.edited or turn.step.reply.fault):
            return Outcome("failed", f"step {number}: it declares {', '.join(sorted(told))}, but nothing drifted")
        if faults or turn.step.edited:
            reported.append(f"step {number}: {', '.join(sorted(declared))}")
        if turn.step.reply.fault in _ONLY_IN_THE_RECORD and not tells:
            untold.append(f"step {number}: the gateway tells no ids to judge by")
        # Who said that a turn cannot be used need not say again why the next prompt does not go on from it.
        excused = told if turn.step.reply.fault else set()
        past = [*turn.calls[-1].prompt, *model.sample(turn.step.reply.pieces)]
    if untold:
        return Outcome("not applicable", untold[0])
    return Outcome("reported", "; ".join(reported)) if reported else Outcome("prevented")


def _prompt_faults(model: Model, turn: Taken, past: Sequence[int] | None) -> list[str]:
    """Return what is wrong with the prompt that the engine sampled from."""
    prompt = turn.calls[-1].prompt
    if past is None:
        return _opening_faults(model, turn)
    if turn.step.edited:
        return []
    pairs = zip(past, prompt, strict=False)
    kept = next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(past), len(prompt)))
    if kept < len(past):
        was, became = (_tokens(model, ids[kept : kept + _AROUND]) for ids in (past, prompt))
        return [f"the past changed at id {kept} of {len(past)}, from {was} to {became}"]
    tail = prompt[len(past) :]
    faults = [_difference(model, tail, expected) for expected in turn.step.tails]
    return [] if "" in faults else [f"after the turn came {_text(model, tail)!r}: {faults[0]}"]


def _opening_faults(model: Model, turn: Taken) -> list[str]:
    prompt = turn.calls[-1].prompt
    expected = turn.step.opening
    if expected is None:
        messages = as_engines_read(turn.messages)
        rendered = model.render(messages, turn.tools)
        if rendered != model.render(messages, turn.tools):  # the template tells the time
            return []
        expected = (rendered,)
    fault = _difference(model, prompt, expected)
    return [f"the first prompt is {_text(model, prompt)!r}: {fault}"] if fault else []


def _difference(model: Model, ids: Sequence[int], expected: Sequence[str]) -> str:
    """Return how ids differ from what is expected: other text, or control tokens elsewhere than the template's own."""
    if model.spell(ids) != "".join(expected).encode():
        return f"expected {''.join(expected)!r}"
    wanted: dict[int, int] = {}
    place = 0
    for piece in expected:
        wanted |= {} if isinstance(piece, Text) else _controls(model, model.encode(piece), place)
        place += len(piece.encode())
    found = _controls(model, ids, 0)
    for place, index in sorted(found.items() - wanted.items()):
        return f"at byte {place} text became the control token {model.control[index]}"
    for place, index in sorted(wanted.items() - found.items()):
        return f"at byte {place} the control token {model.control[index]} became text"
    return ""


def _controls(model: Model, ids: Sequence[int], place: int) -> dict[int, int]:
    """Return the control tokens by the byte where each begins."""
    found: dict[int, int] = {}
    for index in ids:
        if index in model.control:
            found[place] = index
        place += len(model.spell([index]))
    return found


def _record_faults(model: Model, turn: Taken, *, tells: bool) -> list[str]:
    """Return what is wrong with the ids and log-probabilities that the gateway tells.

    Telling none is a fault only where it tells them elsewhere: then this turn is lost without a word.
    """
    received = turn.received
    ids = model.sample(turn.step.reply.pieces)
    faults = []
    if received.prompt_ids is not None and tuple(received.prompt_ids) != turn.calls[-1].prompt:
        faults.append("the prompt ids that it tells are not those of the engine")
    if received.ids is None:
        faults += ["it tells no ids of this turn"] if tells else []
    elif received.ids != ids:
        faults.append(f"it tells {len(received.ids)} sampled ids that are not the {len(ids)} of the engine")
    elif received.logprobs not in (None, [logprob_of(place, index) for place, index in enumerate(ids)]):
        faults.append("the log-probabilities that it tells do not belong to the ids")
    return faults


def _edit_faults(model: Model, turn: Taken) -> list[str]:
    text = _text(model, turn.calls[-1].prompt)
    missing = [f"the engine never saw {wanted!r}" for wanted in turn.step.shows if wanted not in text]
    return missing + [f"the engine still saw {gone!r}" for gone in turn.step.hides if gone in text]


def _text(model: Model, ids: Sequence[int]) -> str:
    return model.spell(ids).decode("utf-8", "replace")


def _tokens(model: Model, ids: Sequence[int]) -> str:
    """Return ids as text with a dot between tokens."""
    return repr("·".join(_text(model, [index]) for index in ids))
