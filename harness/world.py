"""One episode's environment: stepped where it blocks nobody, and put back to before a turn."""

from dataclasses import dataclass

import numpy as np

from agentgym_tok.envs.recording import StepResult
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported, InvalidAction, InvalidIds, WorldError
from agentgym_tok.harness.starts import TokenGym, boundary_of, in_world
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Boundary, EpisodeHead
from agentgym_tok.types import Message

__all__ = ["World"]


class World:
    """Hold the environment of one episode.

    Args:
        env: A token environment, wrapped or not, just reset.
        head: What the episode is.
        keep: Keep a copy of the moment before each step, where the world can be copied.
    """

    def __init__(self, env: TokenGym, head: EpisodeHead, *, keep: bool = False) -> None:
        self.env = env
        self._head = head
        self._keep = keep
        self._before: TokenEnv | None = None
        self._steps: list[_Step] = []

    @property
    def tokens(self) -> TokenEnv:
        """The token environment itself."""
        tokens = self.env.unwrapped
        assert isinstance(tokens, TokenEnv)  # the harness checks
        return tokens

    async def step(self, turn: Context) -> StepResult:
        """Give the world a turn.

        Args:
            turn: The context that ends in it.

        Raises:
            Exception: Whatever a world raises.
        """
        tokens = self.tokens
        self._before = self._copy() if self._keep else None
        if self._keep and self._before is None:
            self._steps.append(_Step(turn, tokens.conversation))
        tokens.adopt(turn)
        step = await in_world(tokens, lambda: _stepped(self.env, turn))
        if self._steps:
            self._steps[-1].text = step.info["text"]
        return step

    async def put_back(self) -> None:
        """Put the world back to before the last step: from the copy, or by playing the episode again.

        Raises:
            WorldError: The world says other things this time.
            Exception: Whatever a world raises.
        """
        if self._before is not None:
            self.env, self._before = self._before, None
            return
        last = self._steps.pop()
        await in_world(self.tokens, lambda: self._again(last))

    def boundary(self, error: Exception) -> Boundary:
        """Say whose fault a failed step was."""
        # While the episode still runs the world has seen nothing: what was refused is the policy's turn.
        if self.tokens.running and isinstance(error, (InvalidAction, InvalidIds)):
            return "policy"
        return boundary_of(error)

    def _copy(self) -> TokenEnv | None:
        # A clone is the bare environment: where somebody wrapped it, his wrappers must stay around it.
        if self.env is not self.tokens:
            return None
        try:
            return self.tokens.clone()
        except CloneUnsupported:
            return None

    def _again(self, last: "_Step") -> None:
        tokens = self.tokens
        self.env.reset(seed=self._head.seed, options={"task": self._head.task})
        for place, step in enumerate(self._steps):
            tokens.adopt(step.turn, step.conversation)
            said = _stepped(self.env, step.turn).info["text"]
            if said != step.text:
                got, expected = said[:80], step.text[:80]
                raise WorldError("the world does not repeat itself", where=f"step {place}", got=got, expected=expected)
        assert last.turn.parent is not None  # a turn answers something
        tokens.adopt(last.turn.parent, last.conversation)


@dataclass(slots=True)
class _Step:
    """A turn that a world got, the conversation before it, and what the world said to it."""

    turn: Context
    conversation: tuple[Message, ...]
    text: str = ""


def _stepped(env: TokenGym, turn: Context) -> StepResult:
    _, reward, terminated, truncated, info = env.step(np.asarray(turn.span.ids_T))
    return StepResult(float(reward), terminated, truncated, info)
