"""Name a difference: by its ids and bytes where they tell, else by where it lies and what is known of both sides."""

from collections.abc import Sequence

import numpy as np

from agentgym_tok.drift.align import Hunk
from agentgym_tok.drift.layout import Part
from agentgym_tok.drift.report import DriftClass
from agentgym_tok.drift.sides import Sides, replaced
from agentgym_tok.tokens import Ids

__all__ = ["name_hunk"]


def name_hunk(sides: Sides, hunk: Hunk) -> tuple[DriftClass, Part]:
    """Return the class of a difference, and where it lies.

    The order of the rules matters: what the ids prove comes before what the place suggests, and what somebody is known
    to have changed comes before what a template may have done.

    Args:
        sides: Both sequences.
        hunk: One of `sides.hunks()`.
    """
    part = _place(sides, hunk)
    kind = _by_ids(sides, hunk) or _by_bytes(sides, hunk)
    if kind is None:
        kind = _in_turn(sides, hunk, part) if part.in_turn else _in_context(sides, hunk, part)
    if kind is None:
        one, other = sides.both(hunk)
        blank = b"".join(one.split()) == b"".join(other.split())
        kind = "whitespace" if blank else "other" if sides.kept is None else "template"
    return kind, part


def _place(sides: Sides, hunk: Hunk) -> Part:
    """Return where a difference lies; one that begins with the prompt's own opener of reasoning lies in the turn."""
    part = sides.layout.part(hunk.start)
    turns = sides.layout.turns
    if part.in_turn or part.turn >= len(turns) or hunk.stop <= turns[part.turn].start:
        return part
    opener = _visible(sides, _without_controls(sides, sides.exact_T[hunk.start : turns[part.turn].start]))
    return part if opener else sides.layout.part(turns[part.turn].start)


# ---- what ids and bytes prove


def _by_ids(sides: Sides, hunk: Hunk) -> DriftClass | None:
    exact_T, text_T = sides.ids(hunk)
    ids = [*exact_T.tolist(), *text_T.tolist()]
    one_sided = not len(exact_T) or not len(text_T)
    if one_sided and hunk.start <= 1 and _is_bos(sides, set(ids)):
        return "bos"
    if hunk.stop == len(sides.exact_T) and len(exact_T):
        ids = exact_T.tolist()  # what the text has there may be what came next
    stops = sides.pipeline.closers
    rest = np.array([index for index in ids if index not in stops], np.int32)
    follows_stop = hunk.start > 0 and int(sides.exact_T[hunk.start - 1]) in stops
    closes = len(rest) < len(ids) or follows_stop
    return "stop_token" if closes and not sides.raw(rest).strip() else None


def _is_bos(sides: Sides, ids: set[int]) -> bool:
    if ids <= sides.pipeline.bos_ids:
        return True
    # A tokenizer that does not tell its BOS: the first control token twice.
    first = [int(ids_T[0]) for ids_T in (sides.exact_T, sides.text_T) if len(ids_T)]
    return ids == set(first) and len(first) == 2 and ids <= sides.pipeline.chat.control_ids


def _by_bytes(sides: Sides, hunk: Hunk) -> DriftClass | None:
    one, other = sides.both(hunk)
    # Where the exact side ends, the text may go on inside the last token.
    joined = hunk.stop == len(sides.exact_T) and bool(one) and other.startswith(one)
    if one != other and not joined and not replaced(one, other):
        return None
    exact, text = sides.controls(hunk)
    return "retokenised" if exact == text else "control_token"


# ---- what the policy wrote


def _in_turn(sides: Sides, hunk: Hunk, part: Part) -> DriftClass | None:
    one, other = (_without_controls(sides, ids_T) for ids_T in sides.ids(hunk))
    if part.place == "reasoning" and not _visible(sides, other):
        if _visible(sides, one):
            return "reasoning_strip"
        same = [text.split() for text in sides.both(hunk)]
        return "whitespace" if same[0] == same[1] else "template"  # an empty block is written otherwise, or not at all
    if sides.kept is None and one.strip() and hunk.text_start == len(sides.text_T):
        return "stop_token"  # a stop string was cut off the text, and left in the ids
    if one == other and (sides.kept is None or sides.kept is not sides.said):
        return "control_token"  # somebody kept the text without them
    changed = sides.turn_change(part.turn)
    if changed == "history_edit":
        return changed
    if part.place == "call":
        return _in_call(sides, hunk, part)
    return changed if part.place == "reasoning" else None


def _without_controls(sides: Sides, ids_T: Ids) -> bytes:
    control_ids = sides.pipeline.chat.control_ids
    return sides.raw(np.array([index for index in ids_T.tolist() if index not in control_ids], np.int32))


def _visible(sides: Sides, text: bytes) -> bytes:
    """Return what a text says beside the delimiters of the dialect."""
    for delimiter in sides.pipeline.chat.delimiters:
        text = text.replace(delimiter.encode(), b"")
    return text.strip()


def _in_call(sides: Sides, hunk: Hunk, part: Part) -> DriftClass:
    call = sides.layout.said(part.turn).tool_calls[part.call]
    start = sides.layout.turns[part.turn].start + call.tokens[0]
    stop = sides.layout.turns[part.turn].start + call.tokens[1]
    exact_T, text_T = sides.ids(hunk)
    if len(exact_T) and not len(text_T) and hunk.start - start <= 1 and hunk.stop >= stop - 1:
        return "template"  # which leaves the whole call out
    kept = sides.kept_message(part.turn)
    named = [other.id for other in kept.tool_calls if other.id and other.id != call.id] if kept is not None else []
    if not call.id or not named:
        return "arguments"
    place = sides.raw(sides.exact_T[start:stop]).find(call.id.encode())
    first = len(sides.raw(sides.exact_T[start : hunk.start]))
    last = first + len(sides.raw(exact_T))
    touched = place >= 0 and first < place + len(call.id.encode()) and last > place
    return "call_id" if touched or _in_words(sides, hunk, named) else "arguments"


# ---- what was put between the turns


def _in_context(sides: Sides, hunk: Hunk, part: Part) -> DriftClass | None:
    said, kept = sides.said, sides.kept
    if said is None or kept is None:
        return None
    before = sides.assistants[: part.turn]
    first = before[-1] + 1 if before else 0
    last = sides.assistants[part.turn] if part.turn < len(sides.assistants) else len(said.messages)
    ids = [message.tool_call_id for side in (said, kept) for message in side.messages[first:last]]
    if _in_words(sides, hunk, [id_ for id_ in ids if id_]):
        return "call_id"
    changes: dict[int, DriftClass] = {
        place: found for place in range(first, last) if (found := sides.message_change(place))
    }
    swapped = part.place == "prompt" and not said.same_tools(kept)
    if changes and (swapped or len(changes) > 1):
        start = sides.layout.turns[part.turn - 1].stop if part.turn else 0
        place = _message_at(sides, hunk, start, range(first, last))
        if place in changes:
            return changes[place]
        if not swapped:
            return changes[min(changes, key=lambda other: abs(other - place))]
    return "tools_swap" if swapped else next(iter(changes.values()), None)


def _in_words(sides: Sides, hunk: Hunk, words: Sequence[str]) -> bool:
    """Tell whether the text side has one of some words where the difference is."""
    start, stop = hunk.text_start, hunk.text_stop
    for word in map(str.encode, words):
        # A token has at least one byte, so that many tokens around hold the word.
        before = sides.raw(sides.text_T[max(0, start - len(word)) : start])
        inside, after = sides.raw(sides.text_T[start:stop]), sides.raw(sides.text_T[stop : stop + len(word)])
        near = before[len(before) - len(word) + 1 :] if len(word) > 1 else b""
        if word in near + inside + after[: len(word) - 1]:
            return True
    return False


def _message_at(sides: Sides, hunk: Hunk, start: int, places: range) -> int:
    """Return the message whose text the difference lies in; -1 where it lies in none."""
    assert sides.said is not None
    text, offset = sides.raw(sides.exact_T[start:]), len(sides.raw(sides.exact_T[start : hunk.start]))
    cursor = 0
    for place in places:
        content = sides.said.messages[place].content.strip().encode()
        begin = text.find(content, cursor)
        if begin < 0:
            continue
        if begin <= offset <= begin + len(content):
            return place
        cursor = begin + len(content)
    return -1
