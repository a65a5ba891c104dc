"""DAgger: what an explorer would have done where a student stood, as rows to imitate."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.explorer import Explorer
from agentgym_tok.envs.prompting import Prompting, expert_turn
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.policies.base import demonstration
from agentgym_tok.trace import Episode, Row, Turn, rows
from agentgym_tok.types import Completion, Sampling

__all__ = ["Corrections", "advice"]


@dataclass(frozen=True, slots=True)
class Corrections:
    """Correct a student turn by turn: it plays, and the world's explorer says what should have been done.

    A student that imitates good play alone never learns the way back from its own mistakes; what it meets when it
    plays itself is what it is corrected in (DAgger; Ross, Gordon, Bagnell, arXiv 1011.0686). An explorer is a function
    of the texts that the agent was shown, so that a trace is all that it needs.

    Args:
        explorer: Makes an explorer of the world.
        prompting: Of the rollouts.
        chat: Of the rollouts.
    """

    explorer: Callable[[], Explorer]
    prompting: Prompting
    chat: ChatFormat

    @classmethod
    def of(cls, tokens: TokenEnv) -> "Corrections":
        """Return what corrects the rollouts of an environment.

        Raises:
            ConfigError: Its world has no explorer, or shortens its texts, which a trace holds whole.
        """
        explorer = type(tokens).explorer
        if explorer is None:
            raise ConfigError(
                "nobody can correct the student: the world has no explorer",
                where="student_share",
                got=type(tokens).__name__,
                expected="a TokenEnv whose class names its `explorer`",
                fix="leave --student-share out",
            )
        if tokens.max_observation_tokens is not None:
            raise ConfigError(
                "an explorer would read more than the student, whose texts are shortened",
                where="student_share",
                got=f"max_observation_tokens {tokens.max_observation_tokens}",
                fix="leave out max_observation_tokens, or --student-share",
            )
        return cls(explorer, tokens.prompting, tokens.chat)

    def rows(self, episode: Episode) -> list[Row]:
        """Return rows in which each turn is what the explorer would have said there, where it knows a way on.

        Turns in which the student said the same share a row; see `agentgym_tok.trace.rows`.

        Args:
            episode: A rollout of the student, solved or not.
        """
        steps = episode.steps
        corrected = [
            replace(turn, completion=said, used=True, failure=None)
            for turn, said in zip(steps, self._said(steps), strict=True)
            if said is not None
        ]
        return rows(replace(episode, turns=tuple(corrected), children=()), objective="sft")

    def _said(self, steps: Sequence[Turn]) -> Iterator[Completion | None]:
        """Yield what the explorer says at each turn, from where the student stands."""
        explorer = self.explorer()
        for command in advice(explorer, steps):
            if command is None:
                yield None
            else:
                said = expert_turn(self.prompting, command, explorer.thought)
                yield demonstration(self.chat, said, "explorer", Sampling())


def advice(explorer: Explorer, steps: Sequence[Turn]) -> Iterator[str | None]:
    """Yield the command that an explorer would give at each turn of a rollout, None where it knows no way on.

    Args:
        explorer: A new one; between two commands it stands where the rollout stands.
        steps: Turns of a rollout, from the first on.
    """
    for place, turn in enumerate(steps):
        shown = str(turn.facts["anchor"])
        if place:
            explorer.follow(steps[place - 1].action_text, shown)
        else:
            explorer.reset(shown)
        yield explorer.act()
