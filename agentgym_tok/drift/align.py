"""Two id sequences side by side: where they differ, found in work that grows with their length alone.

Runs of ids that stand exactly once in both sequences are anchors, as in patience diff; the longest chain of them in
order splits the sequences into gaps, and the gaps are split again by shorter runs. Where nothing is unique, as in a
loop of equal turns, the nearest run that both have is taken. Each round looks at each id of the remaining gaps a
bounded number of times, so that the work is bounded whatever the sequences hold.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.tokens import Ids

__all__ = ["Hunk", "common_prefix", "find_hunks", "refine"]

# A size that stands twice has a second look: inside a gap runs are unique that were not in the whole.
_COARSE = (16, 16, 4, 4)
_NEAREST = (8, 4)
_FINE = (2, 1)
_FIRST_LOOK = 64
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPARE = 16_384
_TAIL = 64


@dataclass(frozen=True, slots=True)
class Hunk:
    """Hold one difference, as half-open ranges of both sequences.

    Args:
        start: First id of the exact side; where nothing stands there, the place where the text side has more.
        stop: The id behind its last one.
        text_start: First id of the text side.
        text_stop: The id behind its last one.
    """

    start: int
    stop: int
    text_start: int
    text_stop: int

    @property
    def count(self) -> int:
        """Ids of the longer side."""
        return max(self.stop - self.start, self.text_stop - self.text_start)


def common_prefix(one_T: Ids, other_T: Ids) -> int:
    """Return the number of ids at the start of both."""
    length = min(len(one_T), len(other_T))
    different = np.flatnonzero(one_T[:length] != other_T[:length])
    return int(different[0]) if len(different) else length


def find_hunks(exact_T: Ids, text_T: Ids) -> list[Hunk]:
    """Return the differences of two sequences, the second of which may go on where the first ends.

    Args:
        exact_T: int32 [T].
        text_T: int32 [T], expected to begin with `exact_T`.

    Returns:
        In order, with equal ids between them. What the text has behind the end of the exact ids is no difference.
    """
    start = common_prefix(exact_T, text_T)
    rest = len(exact_T) - start
    # Far behind the end of a short sequence nothing of it can stand; without this a growing trace costs its square.
    end = min(len(text_T), start + 4 * rest + _SPARE)
    hunks = _split(exact_T, text_T, Hunk(start, len(exact_T), start, end), _COARSE, tail=len(text_T))
    for size in _NEAREST:
        hunks = [part for hunk in hunks for part in _resync(exact_T, text_T, hunk, size)]
    return [_without_tail(hunk, _TAIL) if hunk.stop == len(exact_T) else hunk for hunk in hunks]


def refine(exact_T: Ids, text_T: Ids, hunk: Hunk) -> list[Hunk]:
    """Return the differences inside one, separated by any id that stands once on each side."""
    if hunk.stop == len(exact_T):
        hunk = _shifted(exact_T, text_T, hunk) or hunk
    return _split(exact_T, text_T, hunk, _FINE, tail=0)


def _shifted(exact_T: Ids, text_T: Ids, hunk: Hunk) -> Hunk | None:
    """Return the hunk at the end as ids that are missing, or in excess, before a rest that is the same; else None.

    Such a rest may be too short for anchors, or stand in what the text goes on with a second time.
    """
    exact_T, text_T = exact_T[hunk.start : hunk.stop], text_T[hunk.text_start : hunk.text_stop]
    if not len(exact_T) or not len(text_T):
        return None
    missing = np.flatnonzero(exact_T[1:] == text_T[0])[:_TAIL] + 1
    excess = np.flatnonzero(text_T[1:] == exact_T[0])[:_TAIL] + 1
    for skip in sorted({*missing.tolist(), *excess.tolist()}):
        if skip in missing and common_prefix(exact_T[skip:], text_T) == len(exact_T) - skip:
            return Hunk(hunk.start, hunk.start + skip, hunk.text_start, hunk.text_start)
        if skip in excess and common_prefix(exact_T, text_T[skip:]) == len(exact_T):
            return Hunk(hunk.start, hunk.start, hunk.text_start, hunk.text_start + skip)
    return None


def _split(exact_T: Ids, text_T: Ids, hunk: Hunk, sizes: tuple[int, ...], *, tail: int) -> list[Hunk]:
    gaps, done = [hunk], []
    for size in sizes:
        found: list[Hunk] = []
        for gap in gaps:
            inner = _trim(exact_T, text_T, gap)
            if inner.start == inner.stop or inner.text_start == inner.text_stop:
                done.append(inner)
            else:
                found += _gaps(exact_T, text_T, inner, size)
        gaps = found
    done += [_trim(exact_T, text_T, gap) for gap in gaps]
    done = [_without_tail(gap, tail) if gap.stop == len(exact_T) else gap for gap in done]
    return sorted((gap for gap in done if gap.count), key=lambda gap: (gap.start, gap.text_start))


def _without_tail(gap: Hunk, tail: int) -> Hunk:
    """Cut what the text has behind the end of the exact ids; how much of it that is, only a guess could tell."""
    size = gap.stop - gap.start
    return Hunk(gap.start, gap.stop, gap.text_start, min(gap.text_stop, gap.text_start + (size + tail) * (size > 0)))


def _trim(exact_T: Ids, text_T: Ids, gap: Hunk) -> Hunk:
    one_T, other_T = exact_T[gap.start : gap.stop], text_T[gap.text_start : gap.text_stop]
    before = common_prefix(one_T, other_T)
    at_end = gap.stop == len(exact_T)  # the text may go on, so that its own end is no end
    after = 0 if at_end else common_prefix(one_T[before:][::-1], other_T[before:][::-1])
    return Hunk(gap.start + before, gap.stop - after, gap.text_start + before, gap.text_stop - after)


def _resync(exact_T: Ids, text_T: Ids, hunk: Hunk, size: int) -> list[Hunk]:
    """Return what stands between the runs that both sides have next, each time the one with the least before it."""
    found: list[Hunk] = []
    start, text_start = hunk.start, hunk.text_start
    while start < hunk.stop and text_start < hunk.text_stop:
        near = _nearest(exact_T[start : hunk.stop], text_T[text_start : hunk.text_stop], size)
        if near is None:
            break
        found.append(Hunk(start, start + near[0], text_start, text_start + near[1]))
        start, text_start = start + near[0], text_start + near[1]
        run = common_prefix(exact_T[start : hunk.stop], text_T[text_start : hunk.text_stop])
        start, text_start = start + run, text_start + run
    rest = Hunk(start, hunk.stop, text_start, hunk.text_stop)
    return [*found, rest] if rest.count else found


def _nearest(one_T: Ids, other_T: Ids, size: int) -> tuple[int, int] | None:
    """Return the places of the first piece of one size that both have, looking further as long as there is none."""
    look = _FIRST_LOOK
    while True:
        mine_T, theirs_T = one_T[:look], other_T[:look]
        if min(len(mine_T), len(theirs_T)) < size:
            return None
        hashes, places = np.unique(_grams(mine_T, size), return_index=True)
        text_hashes, text_places = np.unique(_grams(theirs_T, size), return_index=True)
        _, mine, theirs = np.intersect1d(hashes, text_hashes, assume_unique=True, return_indices=True)
        if len(mine):
            best = int(np.argmin(places[mine] + text_places[theirs]))
            return int(places[mine[best]]), int(text_places[theirs[best]])
        if look >= max(len(one_T), len(other_T)):
            return None
        look *= 2


def _gaps(exact_T: Ids, text_T: Ids, gap: Hunk, size: int) -> list[Hunk]:
    """Return what stands between the anchors of a gap; the gap itself where it has none."""
    # What stands beside the gap counts too: a piece that lies half in it is not unique where it is found again inside.
    left = min(size - 1, gap.start, gap.text_start)
    one_T = exact_T[gap.start - left : gap.stop + size - 1]
    other_T = text_T[gap.text_start - left : gap.text_stop + size - 1]
    gaps: list[Hunk] = []
    place, text_place = gap.start, gap.text_start
    for first, text_first, length in _chain(_anchors(one_T, other_T, size)):
        start, text_start = gap.start - left + first, gap.text_start - left + text_first
        # Runs beside each other may overlap, and the last one may reach over the end.
        skip = max(0, place - start, text_place - text_start)
        end = min(length, gap.stop - start, gap.text_stop - text_start)
        if skip < end:
            gaps.append(Hunk(place, start + skip, text_place, text_start + skip))
            place, text_place = start + end, text_start + end
    return [*gaps, Hunk(place, gap.stop, text_place, gap.text_stop)]


def _anchors(one_T: Ids, other_T: Ids, size: int) -> list[tuple[int, int, int]]:
    """Return the runs of ids, made of pieces of one size that stand once on each side, as (place, place, length)."""
    if min(len(one_T), len(other_T)) < size:
        return []
    hashes, places = _unique(_grams(one_T, size))
    text_hashes, text_places = _unique(_grams(other_T, size))
    _, mine, theirs = np.intersect1d(hashes, text_hashes, assume_unique=True, return_indices=True)
    if not len(mine):
        return []
    first, second = places[mine], text_places[theirs]
    order = np.argsort(first)
    first, second = first[order], second[order]
    breaks = np.flatnonzero((np.diff(first) != 1) | (np.diff(second) != 1)) + 1
    runs: list[tuple[int, int, int]] = []
    for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(first)], strict=True):
        place, text_place, length = int(first[start]), int(second[start]), end - start + size - 1
        # Hashes of 64 bits may meet by chance, ids that are equal never lie.
        if np.array_equal(one_T[place : place + length], other_T[text_place : text_place + length]):
            runs.append((place, text_place, length))
    return runs


def _chain(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return a longest chain of runs that stand in the same order on both sides (longest increasing subsequence)."""
    tops: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for number, (_, text_place, _) in enumerate(runs):
        place = bisect_left(tops, text_place)
        back.append(ends[place - 1] if place else -1)
        if place == len(tops):
            tops.append(text_place)
            ends.append(number)
        else:
            tops[place], ends[place] = text_place, number
    chain: list[tuple[int, int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(runs[number])
        number = back[number]
    return chain[::-1]


def _grams(ids_T: Ids, size: int) -> NDArray[np.uint64]:
    """Return a hash of each `size` ids that follow each other."""
    count = len(ids_T) - size + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for shift in range(size):
        hashes = (hashes + ids_T[shift : shift + count].astype(np.uint64) + np.uint64(1)) * _FACTOR
        hashes ^= hashes >> np.uint64(29)  # products alone keep low bits apart from high ones
    return hashes


def _unique(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    values, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    return values[counts == 1], places[counts == 1]
