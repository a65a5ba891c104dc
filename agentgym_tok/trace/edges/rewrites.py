"""Edges of conversations whose past was rewritten: which turn they come from, and what became of what came before."""

from dataclasses import dataclass

import numpy as np

from agentgym_tok.tokens import Ids
from agentgym_tok.trace.edges.likeness import Alignment, align, likeness, squash
from agentgym_tok.trace.edges.lineage import Known
from agentgym_tok.trace.edges.search import FoundEdge, Search
from agentgym_tok.trace.records import EdgeKind
from agentgym_tok.types import Message

__all__ = ["rewrite"]

EMPTY_BLOCK = 8
"""Most ids of an empty block of reasoning, or of what opens one in a generation prompt."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Hold a turn that a conversation may come from.

    Args:
        source: The turn.
        alignment: Its conversation beside the later one.
        end: Number of the later one's messages that it was laid beside; what follows them is new.
    """

    source: Known
    alignment: Alignment
    end: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    kind: EdgeKind
    reason: str
    sources: tuple[Known, ...]


def rewrite(search: Search) -> FoundEdge | None:
    """Return the edge of a conversation that holds an answer of the session; None where it holds none.

    Args:
        search: For a context that begins with no turn's ids.
    """
    fits = _same_prompts(search) or _last_answers(search)
    if not fits:
        return None
    changes = [_changes(search, fit) for fit in fits]
    best = [fit for fit, mine in zip(fits, changes, strict=True) if not any(_beats(other, mine) for other in changes)]
    verdicts = [_verdict(search, fit) for fit in best]
    verdicts = [verdict for verdict in verdicts if verdict.kind != "unknown"] or verdicts
    if len({verdict.kind for verdict in verdicts}) > 1:
        return search.unsure([search.edge(verdict.kind, verdict.sources[-1], verdict.reason) for verdict in verdicts])
    sources = dict.fromkeys(source for verdict in verdicts for source in verdict.sources)
    return search.from_one(verdicts[0].kind, tuple(sources), verdicts[0].reason)


def _same_prompts(search: Search) -> list[_Fit]:
    """Return the earlier turns that were asked with these very messages, though with other ids."""
    fits = []
    for step in search.lineage.steps():
        if step.length != len(search.body) or not search.body:
            continue
        # Without any answer, one prompt under two systems or with two sets of tools may be that of two agents.
        if step.answers or not search.changed(step):
            alignment = align(step.body(), search.body)
            if not alignment.gone:
                fits.append(_Fit(step, alignment, len(search.body)))
    return fits[::-1]


def _last_answers(search: Search) -> list[_Fit]:
    """Return the turns whose answer is the last one of the session that the conversation holds."""
    for place in reversed(range(len(search.body))):
        message = search.body[place]
        if message.role == "assistant":
            sources = [step for step in search.lineage.steps() if likeness(step.answer, message)]
            if sources:
                past = search.body[: place + 1]
                return [_Fit(step, align([*step.body(), step.answer], past), place + 1) for step in sources[::-1]]
    return []


def _changes(search: Search, fit: _Fit) -> tuple[int, int, int]:
    """Count the messages that are gone, those that are new in between, and the others of system messages and tools."""
    return fit.alignment.gone, fit.alignment.new, len(search.changed(fit.source))


def _beats(other: tuple[int, int, int], mine: tuple[int, int, int]) -> bool:
    """Tell whether less was changed in one respect and no more in any; else neither is likelier."""
    return other != mine and all(less <= more for less, more in zip(other, mine, strict=True))


def _verdict(search: Search, fit: _Fit) -> _Verdict:
    """Say which kind of rewrite leads from a turn to this context, and why."""
    aligned, source = fit.alignment, fit.source
    first = search.name(aligned.before)
    also = "".join(f", and {change}" for change in search.changed(source))
    foreign = [place for place in range(fit.end, len(search.body)) if search.body[place].role == "assistant"]
    if foreign:
        return _Verdict("unknown", f"{search.name(foreign[0])} is no answer of this session", (source,))
    if not aligned.gone and not aligned.new:
        return _goes_on(search, fit)
    if aligned.gone == aligned.new:
        return _edited(search, fit, also)
    if aligned.new > aligned.gone:
        return _Verdict("unknown", f"messages were put into turn {source.index}'s conversation at {first}", (source,))
    new = search.body[aligned.before : aligned.before + aligned.new]
    quoted = search.quoted_by(new)
    if not aligned.before and (not search.same_system(source) or (new and not quoted)):
        what = "behind other messages" if search.same_system(source) else "under another system message"
        return _Verdict("unknown", f"the end of turn {source.index}'s conversation stands {what}", (source,))
    if quoted:
        reason = f"{aligned.gone} messages are gone at {first}, an earlier answer stands for them{also}"
        return _Verdict("compaction", reason, tuple(quoted))
    instead = f", {aligned.new} others stand for them" if new else ""
    return _Verdict("compaction", f"{aligned.gone} messages are gone at {first}{instead}{also}", (source,))


def _goes_on(search: Search, fit: _Fit) -> _Verdict:
    """Name what changed where every message is still there; of several changes the first: system, tools, reasoning."""
    source = fit.source
    changed = search.changed(source)
    if changed:
        kind: EdgeKind = "tools_change" if search.same_system(source) else "system_swap"
        return _Verdict(kind, " and ".join(changed), (source,))
    place = source.place(search.context)
    holder = next((known for known in source.chain() if place is not None and place < known.end), None)
    if holder is None or place is None:
        return _Verdict("rerender", "", (source,))
    stripped = next((step for step in search.lineage.steps() if _is_strip(search, source, step, place)), None)
    if stripped is not None:
        return _Verdict("strip_reasoning", f"the reasoning of turn {stripped.index} is gone", (source,))
    also = ", and reasoning is gone" if fit.alignment.stripped else ""
    inside = place - len(holder.turn.context)
    part = f"answer of turn {holder.index} has other ids from its token {inside} on"
    part = part if inside >= 0 else f"prompt of turn {holder.index} has other ids"
    return _Verdict("rerender", f"the {part}{also}", (source,))


def _is_strip(search: Search, source: Known, holder: Known, place: int) -> bool:
    """Tell whether the rest of an answer follows where its beginning, the reasoning, stood in the source's ids."""
    ids_T, answer_T, said = search.context.ids, holder.turn.completion.ids_T, holder.said
    inside = place - len(holder.turn.context)
    if not said.reasoning or not -EMPTY_BLOCK <= inside < len(answer_T):
        return False
    # Also a prompt that was opened anew holds an answer as it was sampled, as long as nothing before it moved.
    if holder is not source and (
        holder.end > len(source.turn.context) or holder.place(source.turn.context) is not None
    ):
        return False
    if not (said.closed or said.content or said.tool_calls):
        return True  # it was cut off while it thought, and has no rest
    begin = min(place, len(holder.turn.context))
    for start in range(place, min(place + EMPTY_BLOCK + 1, len(ids_T))):
        for skipped in np.flatnonzero(answer_T == ids_T[start]).tolist():
            end = start + len(answer_T) - skipped
            # The rest says all that the answer said, and what stands before it says nothing.
            if (
                skipped > inside
                and np.array_equal(ids_T[start:end], answer_T[skipped:])
                and all(_says(search, holder, part_T) for part_T in (answer_T[skipped:], ids_T[begin:end]))
            ):
                return True
    return False


def _says(search: Search, holder: Known, ids_T: Ids) -> bool:
    """Tell whether ids say what a turn's answer says behind its reasoning."""
    read, said = search.lineage.parse(ids_T, holder.turn.context.root.tools or None), holder.said
    # Where prompts open the reasoning, a turn without its end reads as nothing but reasoning.
    text = squash((read.reasoning or "") + read.content)
    return text == squash(said.content) and len(read.tool_calls) == len(said.tool_calls)


def _edited(search: Search, fit: _Fit, also: str) -> _Verdict:
    """Say what became of messages that are others where they stood."""
    aligned, source = fit.alignment, fit.source
    start = aligned.before
    entries = [*source.body(), source.answer][start : start + aligned.gone]
    pairs = [(entry, search.body[start + place]) for place, entry in enumerate(entries)]
    changed = [place for place, (entry, later) in enumerate(pairs) if not likeness(entry, later)]
    first = search.name(start + changed[0])
    if all(_is_shortened(pairs[place][0].message, pairs[place][1]) for place in changed):
        reason = f"the contents of {len(changed)} tool results are gone from {first} on{also}"
        return _Verdict("compaction", reason, (source,))
    return _Verdict("unknown", f"{first} is not what it was at turn {source.index}{also}", (source,))


def _is_shortened(earlier: Message, later: Message) -> bool:
    return earlier.role == later.role == "tool" and len(later.content) < len(earlier.content)
