"""The skills of a run: who gets which, what is learned about them, and how they grow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal, teacher_contexts
from agentgym_tok.learner.training.config import SkillUse
from agentgym_tok.seeds import derive_seed
from agentgym_tok.skills import (
    Retrieved,
    Retriever,
    SkillBank,
    SkillQuery,
    Ucb,
    UcbStatistics,
    grow,
    load_bank,
    make_retriever,
)
from agentgym_tok.trace import Episode, Row
from agentgym_tok.types import Policy

__all__ = ["SkillStore"]


class SkillStore:
    """Hold a bank and the rule that chooses from it, and tell the rule how episodes ended.

    Args:
        use: The bank, the rule and its options.
        chat: The chat format.
        seed: Of the run; a rule that draws has one of its own where its options say none.

    Raises:
        UnknownName: There is no such bank or rule.
        DataMissing: The bank's file is missing.
        DataCorrupt: It is no bank.
        ConfigError: The rule has no such option.
    """

    def __init__(self, use: SkillUse, chat: ChatFormat, seed: int) -> None:
        if "file" in use.options:
            raise ConfigError(
                "what a run learns about skills stands in its checkpoint",
                where="skills.options",
                got=f"file={use.options['file']!r}",
                fix="leave file out",
            )
        self._use, self._chat, self._seed = use, chat, seed
        self.retriever: Retriever = self._rule(load_bank(use.bank))
        self._since: list[Episode] = []
        """Rollouts since skills were grown last, where they grow."""

    @property
    def bank(self) -> SkillBank:
        """The skills as they are now."""
        return self.retriever.bank

    def teach(
        self, episodes: Sequence[Episode], made: Sequence[Sequence[Row]]
    ) -> list[TeacherContext | TeacherRefusal]:
        """Return what the teacher reads of all rows, in their order.

        Args:
            episodes: Rollouts.
            made: The rows of each.
        """
        found: list[TeacherContext | TeacherRefusal] = []
        for episode, rows in zip(episodes, made, strict=True):
            text = self._retrieve(episode).text
            found += teacher_contexts(episode, rows, text, self._chat, self._use.teacher)
        return found

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Tell the rule what rollouts came to; those of one call have been given the same skills."""
        ended = [episode for episode in episodes if episode.status == "done"]
        for found, episode in [(self._retrieve(episode), episode) for episode in ended]:
            self.retriever.update(found, episode.return_)
        if self._use.grow_every:
            self._since += ended

    def grow(self, policy: Policy, step: int) -> dict[str, float]:
        """Ask a policy for the skills that failed rollouts lacked; what is known of categories is kept.

        Returns:
            `skills/asked` (categories), `skills/added`, `skills/refused`, `skills/held`.
        """
        seed = derive_seed(self._seed, "grow", step)
        grown = grow(self.bank, self._since, policy, self._chat, self._use.growth, seed=seed)
        self._since = []
        known = self._known()
        self.retriever = self._rule(grown.bank, None if known is None else known.carried_to(grown.bank))
        return {
            "skills/asked": float(len(grown.asked)),
            "skills/added": float(sum(len(one.added) for one in grown.asked)),
            "skills/refused": float(sum(len(one.refused) for one in grown.asked)),
            "skills/held": float(len(grown.bank.skills)),
        }

    def state(self) -> dict[str, Any]:
        """Return what was learned and grown, as text; rollouts since the last growth by their ids."""
        known = self._known()
        return {
            "bank": self.bank.model_dump_json(),
            "statistics": None if known is None else known.model_dump_json(),
            "since": [episode.id for episode in self._since],
        }

    def load_state(self, state: Mapping[str, Any], episode: Callable[[str], Episode]) -> None:
        """Go on from a state.

        Args:
            state: Of `state`.
            episode: Gives an episode of the run by its id.
        """
        bank, known = SkillBank.model_validate_json(state["bank"]), state["statistics"]
        self.retriever = self._rule(bank, None if known is None else UcbStatistics.model_validate_json(known))
        self._since = [episode(name) for name in state["since"]]

    def _rule(self, bank: SkillBank, known: UcbStatistics | None = None) -> Retriever:
        options = dict(self._use.options)
        if self._use.retrieval == "random":
            options.setdefault("seed", self._seed)
        if known is not None:
            options["statistics"] = known
        return make_retriever(self._use.retrieval, bank, **options)

    def _known(self) -> UcbStatistics | None:
        return self.retriever.statistics if isinstance(self.retriever, Ucb) else None

    def _retrieve(self, episode: Episode) -> Retrieved:
        # Ids of episodes are drawn anew in each process; their places in the run are not.
        key = f"{episode.group_id}/{episode.head.replica}"
        return self.retriever.retrieve(replace(SkillQuery.of_episode(episode), key=key))
