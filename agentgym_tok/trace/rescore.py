"""A replay proof: logged log-probabilities beside those that a model gives the same ids in the same contexts."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError, FingerprintMismatch, PolicyError
from agentgym_tok.trace.accounting import account_rows
from agentgym_tok.trace.records import Episode, Row, Turn
from agentgym_tok.trace.rows import family, mask_reason, rows
from agentgym_tok.trace.store import TraceStore
from agentgym_tok.types import Policy, Scorer, ScoreRequest, Scores

__all__ = ["TOLERANCE", "Differences", "Place", "Rescoring", "rescore"]

Kind: TypeAlias = Literal["raw", "processed"]

TOLERANCE = 1e-3
"""Nats. Float32 engines agree to about 3e-5 (vLLM beside transformers); other weights differ by tenths and more."""

# Beyond it the estimate of the divergence says no more than that it is huge, and would not stay finite.
_HUGE = 80.0


@dataclass(frozen=True, slots=True)
class Place:
    """Point at one scored token.

    Args:
        episode: Id of the episode.
        turn: Index of the turn.
        position: Place in the turn's answer, from 0.
        id: The token.
        text: Its text, as the trace stores it; empty where it does not.
        logged: Logged log-probability in nats.
        scored: The model's; None where the model could not have drawn the token.
    """

    episode: str
    turn: int
    position: int
    id: int
    text: str
    logged: float
    scored: float | None


@dataclass(frozen=True, slots=True)
class Differences:
    """Sum up scored minus logged, in nats, over the tokens of one kind and one weight version.

    Args:
        kind: Of the log-probabilities: `raw` or `processed`, as they were logged, and scored accordingly.
        version: Of the weights that drew the tokens; None where the engine named none.
        judged: The version is the model's own, or unnamed; others are bound to differ.
        tokens: How many.
        mean_abs: Mean of the sizes.
        mean: Mean with signs.
        largest_abs: The largest size.
        kl: Estimate of KL(logged || scored), mean of `exp(d) - 1 - d` (k3 in J. Schulman, "Approximating KL
            Divergence", 2020).
        beyond: Tokens whose size is above the tolerance, impossible ones included.
        impossible: Tokens that the model could not have drawn under the recorded top-k and top-p; in no mean.
        largest: Where the largest stands; an impossible token comes before all others.
    """

    kind: Kind
    version: str | None
    judged: bool
    tokens: int
    mean_abs: float
    mean: float
    largest_abs: float
    kl: float
    beyond: int
    impossible: int
    largest: Place | None


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Hold what a rescoring found.

    Args:
        run: The folder.
        tolerance: Largest size that passes, in nats.
        version: The weight version that was judged.
        episodes: Rollouts that were scored, subagents not counted.
        differences: By kind and weight version.
        not_scored: Ids of turns that were not scored, by reason: those that `account` gives under `rl`.
    """

    run: str
    tolerance: float
    version: str | None
    episodes: int
    differences: tuple[Differences, ...]
    not_scored: Mapping[str, int]

    @property
    def judged(self) -> tuple[Differences, ...]:
        """The differences that say something about the log."""
        return tuple(found for found in self.differences if found.judged)

    @property
    def ok(self) -> bool:
        """Some token was judged, and none is beyond the tolerance."""
        return bool(self.judged) and not any(found.beyond for found in self.judged)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {**dataclasses.asdict(self), "not_scored": dict(sorted(self.not_scored.items())), "ok": self.ok}


def rescore(
    run: str | Path,
    scorer: Policy | Scorer,
    *,
    tolerance: float = TOLERANCE,
    version: str | None = None,
    episodes: int | None = None,
) -> Rescoring:
    """Score the logged contexts and compare with the logged log-probabilities.

    Each row of `rows(merge="prefix")` is one sequence: a conversation is computed once, however many turns it has.

    Args:
        run: Folder of the run.
        scorer: A policy that can score, of the run's own chat format.
        tolerance: Largest difference that passes, in nats.
        version: The weight version that the scorer stands for; None asks the scorer.
        episodes: How many rollouts, the first ones; None takes all.

    Raises:
        ConfigError: The policy cannot score.
        FingerprintMismatch: It knows the ids of another chat format.
        PolicyError: A sequence does not fit the model, or it returned something else than was asked for.
        TraceError: There is no trace, or it cannot be read.
    """
    if not isinstance(scorer, Scorer):
        expected = "hf:PATH, or a policy of yours with a method score"
        raise ConfigError("the policy cannot score given ids", where="rescore", got=scorer.name, expected=expected)
    sums: dict[tuple[Kind, str | None], _Sums] = {}
    not_scored: Counter[str] = Counter()
    count = 0
    with TraceStore(run, mode="r") as store:
        _check_format(store, scorer)
        for episode in islice(store.episodes(), episodes):
            count += 1
            made = rows(episode)
            not_scored.update(account_rows(episode, made, "rl").masked)
            for scored in _scored(episode, made, scorer):
                version = scored.scored_by if version is None else version
                sums.setdefault((scored.kind, scored.version), _Sums()).add(scored, tolerance)
        texts = store.tokens()
    found = [
        total.differences(kind, drawn_by, texts, judged=drawn_by in (None, version))
        for (kind, drawn_by), total in sums.items()
    ]
    found.sort(key=lambda one: (not one.judged, one.kind, one.version or ""))
    return Rescoring(str(run), tolerance, version, count, tuple(found), not_scored)


def _check_format(store: TraceStore, scorer: Scorer) -> None:
    meta = store.meta
    if scorer.fingerprint != meta.fingerprint:
        raise FingerprintMismatch(
            "the policy knows the ids of another chat format",
            where=store.run,
            got=scorer.fingerprint[:16],
            expected=f"{meta.fingerprint[:16]} ({meta.chat or 'unnamed'})",
            fix="make the policy with the format that the run was made with",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """Tokens of one turn that one weight version drew."""

    turn: Turn
    kind: Kind
    version: str | None
    places_S: NDArray[np.intp]
    logged_S: NDArray[np.float64]
    scored_S: NDArray[np.float64]
    scored_by: str


def _scored(episode: Episode, made: list[Row], scorer: Scorer) -> Iterator[_Scored]:
    turns = {
        (member.id, turn.index): turn
        for member in family(episode)
        for turn in member.turns
        if mask_reason(turn, "rl") is None
    }
    asked = [[turns[row.rollout_id, index] for index in np.unique(row.turn_T[row.mask_T]).tolist()] for row in made]
    requests = [_request(row, cover) for row, cover in zip(made, asked, strict=True)]
    answers = scorer.score(requests) if requests else []
    if len(answers) != len(requests):
        raise PolicyError("the scorer left some out", where=episode.id, got=len(answers), expected=len(requests))
    for row, cover, answer in zip(made, asked, answers, strict=True):
        yield from _by_version(row, cover, answer)


def _request(row: Row, cover: list[Turn]) -> ScoreRequest:
    parts = []
    for turn in cover:
        start, sampling = len(turn.context), turn.completion.sampling
        assert sampling is not None  # else the turn would be masked
        parts.append((start, start + len(turn.completion.ids_T), sampling))
    return ScoreRequest(row.ids_T, tuple(parts))


def _by_version(row: Row, cover: list[Turn], scores: Scores) -> Iterator[_Scored]:
    asked = int(row.mask_T.sum())
    if not len(scores.raw_S) == len(scores.processed_S) == asked:
        got = f"{len(scores.raw_S)} and {len(scores.processed_S)}"
        raise PolicyError("one score belongs to each id", where=row.rollout_id, got=got, expected=asked)
    done = 0
    for turn in cover:
        start, length = len(turn.context), len(turn.completion.ids_T)
        kind: Kind = "raw" if turn.completion.logprobs == "raw" else "processed"
        values = scores.raw_S if kind == "raw" else scores.processed_S
        scored_T = values[done : done + length].astype(np.float64)
        logged_T = row.logprobs_T[start : start + length].astype(np.float64)
        version_T = row.version_T[start : start + length]
        done += length
        if not (scored_T <= 0).all():  # a comparison that nan fails
            raise PolicyError("a score is no log-probability", where=f"turn {turn.index} of {row.rollout_id}")
        for number in np.unique(version_T).tolist():
            places_S = np.flatnonzero(version_T == number)
            drawn_by = row.versions[number] if number >= 0 else None
            yield _Scored(turn, kind, drawn_by, places_S, logged_T[places_S], scored_T[places_S], scores.version)


@dataclass(slots=True)
class _Sums:
    tokens: int = 0
    possible: int = 0
    size: float = 0.0
    signed: float = 0.0
    kl: float = 0.0
    beyond: int = 0
    largest_abs: float = 0.0
    largest: tuple[float, _Scored, int] | None = None

    def add(self, scored: _Scored, tolerance: float) -> None:
        difference_S = scored.scored_S - scored.logged_S
        size_S = np.abs(difference_S)
        possible_S = difference_S[np.isfinite(difference_S)]
        self.tokens += len(difference_S)
        self.possible += len(possible_S)
        self.size += float(np.abs(possible_S).sum())
        self.signed += float(possible_S.sum())
        self.kl += float((np.expm1(np.minimum(possible_S, _HUGE)) - possible_S).sum())
        self.beyond += int((size_S > tolerance).sum())
        self.largest_abs = max(self.largest_abs, float(np.abs(possible_S).max(initial=0.0)))
        place = int(size_S.argmax())
        if self.largest is None or size_S[place] > self.largest[0]:
            self.largest = float(size_S[place]), scored, place

    def differences(self, kind: Kind, version: str | None, texts: Mapping[int, str], *, judged: bool) -> Differences:
        count = max(1, self.possible)
        return Differences(
            kind=kind,
            version=version,
            judged=judged,
            tokens=self.tokens,
            mean_abs=self.size / count,
            mean=self.signed / count,
            largest_abs=self.largest_abs,
            kl=self.kl / count,
            beyond=self.beyond,
            impossible=self.tokens - self.possible,
            largest=None if self.largest is None else _place(*self.largest[1:], texts),
        )


def _place(scored: _Scored, place: int, texts: Mapping[int, str]) -> Place:
    position = int(scored.places_S[place])
    index = int(scored.turn.completion.ids_T[position])
    value = float(scored.scored_S[place])
    return Place(
        episode=scored.turn.episode,
        turn=scored.turn.index,
        position=position,
        id=index,
        text=texts.get(index, ""),
        logged=float(scored.logged_S[place]),
        scored=value if math.isfinite(value) else None,
    )
