"""What two runs have in common: the same sample of the same task, on the same data."""

from dataclasses import dataclass
from typing import TypeAlias

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.results import EpisodeResult
from agentgym_tok.evaluate.run_results import PartResults, RunResults

__all__ = ["Pair", "PairedPart", "paired"]

Pair: TypeAlias = tuple[EpisodeResult, EpisodeResult]
"""The same sample of the same task in both runs."""


@dataclass(frozen=True, slots=True)
class PairedPart:
    """Hold a part that two runs have.

    Args:
        part: What the first run says of it.
        pairs: In the order of the first run.
        left_out: Episodes of either run that the other one has not.
    """

    part: PartResults
    pairs: tuple[Pair, ...]
    left_out: int


def paired(base: RunResults, other: RunResults, *, common: bool = False) -> list[PairedPart]:
    """Pair the episodes of two runs.

    Args:
        base: The first run.
        other: The second one.
        common: Leave out what only one of both has.

    Raises:
        ConfigError: The runs were played in other worlds or on other data, or, without `common`, one has parts, tasks
            or samples that the other has not.
    """
    own, others = {part.name: part for part in base.parts}, {part.name: part for part in other.parts}
    shared = [name for name in own if name in others]
    if not shared or (own.keys() != others.keys() and not common):
        raise ConfigError(
            "the runs have other parts",
            where="compare",
            got=", ".join(others),
            expected=", ".join(own),
            fix="compare what both have by --common" if shared else "compare runs of the same worlds",
        )
    return [_paired(own[name], others[name], base, other, common=common) for name in shared]


def _paired(part: PartResults, same: PartResults, base: RunResults, other: RunResults, *, common: bool) -> PairedPart:
    where = f"compare, part {part.name}"
    if part.source != same.source:
        what, fix = "the runs were played in other worlds", "compare runs of one source"
        raise ConfigError(what, where=where, got=same.source, expected=part.source, fix=fix)
    own = {(result.task, result.replica): result for result in base.of_part(part.name)}
    others = {(result.task, result.replica): result for result in other.of_part(part.name)}
    pairs = tuple((result, others[key]) for key, result in own.items() if key in others)
    left_out = len(own) + len(others) - 2 * len(pairs)
    if not pairs or (left_out and not common):
        task, replica = min(own.keys() ^ others.keys())
        raise ConfigError(
            "the runs have other tasks or samples",
            where=where,
            got=f"{len(others)} episodes, {len(pairs)} of them in the first run; in one run only: {task}, {replica}",
            expected=f"the first run's {len(own)} episodes",
            fix="compare the common ones by --common" if pairs else "play both with the same split, episodes and seed",
        )
    for one, two in pairs:
        if one.opening and two.opening and one.opening != two.opening:
            raise ConfigError(
                "a task is not the same in both runs",
                where=f"{where}, task {one.task}",
                got=f"a first text with digest {two.opening}",
                expected=one.opening,
                fix="play both on the same data",
            )
    return PairedPart(part, pairs, left_out)
