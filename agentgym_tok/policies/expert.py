"""Policies that worlds bring along: the expert, the explorer, and random admissible commands."""

from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import BasePolicy, demonstration
from agentgym_tok.types import Completion, Request

__all__ = ["ExpertPolicy", "ExplorerPolicy", "RandomPolicy"]


class ExpertPolicy(BasePolicy):
    """Write what the world's own expert would do; its turns are demonstrations.

    Args:
        chat: Encodes the turns.
    """

    name = "expert"
    deterministic = True
    wants_info = True

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat

    def answer(self, request: Request) -> Completion:
        """Encode the turn that the world hints at.

        Raises:
            PolicyError: The world has nobody of this name, or that one knows no way on from here.
        """
        return demonstration(self._chat, _hint(request, self.name, self.name), self.name, request.sampling)


class ExplorerPolicy(ExpertPolicy):
    """Write what a player would do who sees what the agent sees; its turns are demonstrations.

    The expert may know where things are, so imitating it teaches guessing; the explorer finds out.

    Args:
        chat: Encodes the turns.
    """

    name = "explorer"


class RandomPolicy(BasePolicy):
    """Choose one of the admissible commands, each equally likely; its turns are encoded text, so demonstrations.

    Args:
        chat: Encodes the turns.
    """

    name = "random"
    deterministic = True
    wants_info = True

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat

    def answer(self, request: Request) -> Completion:
        """Draw a command from a generator of the request's own seed.

        Raises:
            PolicyError: The world lists no admissible commands.
        """
        choices: tuple[str, ...] = _hint(request, "admissible", self.name)
        choice = choices[int(np.random.default_rng(request.seed).integers(len(choices)))]
        return demonstration(self._chat, choice, self.name, request.sampling)


def _hint(request: Request, name: str, policy: str) -> Any:
    hint = (request.info or {}).get(name)
    if not hint:
        raise PolicyError(
            f"the world gives no {name} turns here",
            where=f"policy {policy!r}",
            expected=f"Request.info[{name!r}], as TokenEnv.hints() makes it",
            fix="use a world that has one, or another policy",
        )
    return hint
