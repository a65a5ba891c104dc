"""Retrieval by an upper confidence bound, with statistics that outlive the process."""

import json
import math
import threading
from pathlib import Path

from pydantic import Field, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, DataCorrupt
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.files import not_valid, read_json, write_text
from agentgym_tok.skills.matching import SkillQuery
from agentgym_tok.skills.retrieved import Retrieved, retrieved
from agentgym_tok.skills.skill import Category

__all__ = ["Arm", "Ucb", "UcbStatistics", "ucb_score"]


def ucb_score(mean: float, chosen: int, total: int, c: float) -> float:
    """Return `mean + c * sqrt(ln total / chosen)`, infinite for an arm that was never chosen.

    The rule is Skill-SD's (arXiv 2604.10674), which SDAR takes over. Neither gives `c` nor says what an unseen arm
    scores; here unseen arms come first.

    Args:
        mean: Mean reward of the arm.
        chosen: How often it was chosen, for this kind of task.
        total: How often any arm was, for this kind of task.
        c: Weight of the second term, in units of the reward.
    """
    return mean + c * math.sqrt(math.log(total) / chosen) if chosen else math.inf


class Arm(Config):
    """Hold what is known of one category for one kind of task."""

    chosen: int = Field(default=0, ge=0, description="episodes that had it")
    reward: float = Field(default=0.0, description="sum of their rewards")

    @property
    def mean(self) -> float:
        """Mean reward; 0 before the first one."""
        return self.reward / self.chosen if self.chosen else 0.0


class UcbStatistics(Config):
    """Hold what was learned about the categories of one bank; see `Ucb`."""

    bank: str = Field(description="`SkillBank.digest`")
    arms: dict[str, dict[str, Arm]] = Field(
        default_factory=dict, description="by kind of task, then by category chosen"
    )

    @classmethod
    def load(cls, path: str | Path) -> "UcbStatistics":
        """Read statistics that `save` has written.

        Raises:
            DataMissing: There is no such file.
            DataCorrupt: It holds something else.
        """
        try:
            return cls.model_validate(read_json(Path(path), "statistics of skills"))
        except ValidationError as error:
            raise not_valid(error, "statistics of skills", Path(path)) from error

    def save(self, path: str | Path) -> None:
        """Write them, whole or not at all; an older file is replaced.

        Raises:
            ConfigError: The file cannot be written.
        """
        write_text(Path(path), json.dumps(self.model_dump(mode="json"), indent=1) + "\n")

    def carried_to(self, bank: SkillBank) -> "UcbStatistics":
        """Return them for a changed bank: categories that it still has keep what is known, whatever they say now."""
        names = {category.name for category in bank.categories}
        kept = {kind: {name: arm for name, arm in arms.items() if name in names} for kind, arms in self.arms.items()}
        return UcbStatistics(bank=bank.digest, arms=kept)


class Ucb:
    """Choose the category whose skills have served tasks of this kind best, by an upper confidence bound.

    The kind of a task is what `SkillBank.match` finds for it; tasks that match nothing are one kind. For each kind
    every category is an arm, with `ucb_score`. Arms that were never chosen come first; among equals the first one in
    the bank's order is taken. An episode counts when `update` is told of its end, so that episodes which begin together
    get the same skills. Threads may share an object.

    Args:
        bank: The skills; it must have a category.
        c: Weight of exploration, in units of the reward; over 0, so that no arm is left for good.
        mistakes: Most mistakes to warn of.
        statistics: What is known already, of this very bank; `UcbStatistics.carried_to` takes what is known to another.
        file: Where statistics are read from, if it is there, and written to with every update. One process writes it.

    Raises:
        ConfigError: A number cannot be what it is, the bank has no categories, the statistics belong to another
            bank, or both statistics and a file that is there are given.
        DataCorrupt: The file holds no statistics.
    """

    name = "ucb"

    def __init__(
        self,
        bank: SkillBank,
        *,
        c: float = 1.0,
        mistakes: int = 5,
        statistics: UcbStatistics | None = None,
        file: str | Path | None = None,
    ) -> None:
        if not (math.isfinite(c) and c > 0):
            raise ConfigError("the weight of exploration is impossible", where="Ucb", got=c, expected="a number over 0")
        if not bank.categories:
            raise ConfigError("there is nothing to choose among", where="Ucb", got="a bank without categories")
        self.bank, self.c = bank, c
        self._mistakes = mistakes
        self._file = None if file is None else Path(file)
        self._lock = threading.Lock()
        if self._file is not None and self._file.exists():
            if statistics is not None:
                fix = "leave one of them out, or remove the file"
                raise ConfigError("there are two statistics", where=f"Ucb: {self._file}", fix=fix)
            statistics = UcbStatistics.load(self._file)
        self._arms = self._checked(statistics or UcbStatistics(bank=bank.digest))

    def _checked(self, statistics: UcbStatistics) -> dict[str, dict[str, Arm]]:
        where = f"Ucb: {self._file or 'statistics'}"
        if statistics.bank != self.bank.digest:
            raise ConfigError(
                "the statistics belong to another skill bank",
                where=where,
                got=statistics.bank,
                expected=self.bank.digest,
                fix="load the bank that they were made with, take them over by carried_to(bank), or begin anew",
            )
        unknown = {name for arms in statistics.arms.values() for name in arms if self.bank.category(name) is None}
        if unknown:
            got = ", ".join(sorted(unknown))
            raise DataCorrupt("the statistics name no category of their bank", where=where, got=got)
        return {kind: dict(arms) for kind, arms in statistics.arms.items()}

    @property
    def statistics(self) -> UcbStatistics:
        """What is known now."""
        with self._lock:
            return self._statistics()

    def _statistics(self) -> UcbStatistics:
        return UcbStatistics(bank=self.bank.digest, arms=self._arms)

    def retrieve(self, query: SkillQuery) -> Retrieved:
        """Return the skills of the best arm for the task's kind."""
        with self._lock:
            category = self._best(self._kind(query))
        return retrieved(self.bank, query, [category], self._mistakes)

    def _kind(self, query: SkillQuery) -> str:
        return "+".join(category.name for category in self.bank.match(query))

    def _best(self, kind: str) -> Category:
        arms = self._arms.get(kind, {})
        total = sum(arm.chosen for arm in arms.values())

        def score(category: Category) -> float:
            arm = arms.get(category.name, _UNSEEN)
            return ucb_score(arm.mean, arm.chosen, total, self.c)

        return max(self.bank.categories, key=score)  # the first among equals

    def update(self, found: Retrieved, reward: float) -> None:
        """Count an episode that had these skills.

        Args:
            found: What `retrieve` returned for it.
            reward: Its return.

        Raises:
            ConfigError: The reward is not finite, or these skills were not chosen here, and nothing is counted; or the
                file cannot be written, and the episode counts in memory alone.
        """
        names = {category.name for category in self.bank.categories}
        if not math.isfinite(reward) or len(found.categories) != 1 or found.categories[0] not in names:
            got = f"reward {reward}, categories {found.categories}"
            expected = "a finite reward, and what this object retrieved"
            raise ConfigError("this episode cannot be counted", where="Ucb.update", got=got, expected=expected)
        (name,) = found.categories
        with self._lock:
            arms = self._arms.setdefault(self._kind(found.query), {})
            arm = arms.get(name, _UNSEEN)
            arms[name] = Arm(chosen=arm.chosen + 1, reward=arm.reward + reward)
            if self._file is not None:
                self._statistics().save(self._file)


_UNSEEN = Arm()
