"""A policy in twenty lines: it guesses among the numbers that are left."""

import re

import numpy as np

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.policies import BasePolicy

__all__ = ["Guesser"]


class Guesser(BasePolicy):
    """Guess a number that nothing has ruled out.

    Args:
        target: What stands behind the colon; nothing is asked for.
        chat: Reads the context and writes the turn.
        boldness: How far from the middle guesses may be, from 0 to 1.
    """

    name = "guesser"
    deterministic = True

    def __init__(self, target: str, chat: ChatFormat, *, boldness: float = 0.0) -> None:
        del target
        self._chat, self._boldness = chat, boldness

    def answer(self, request: Request) -> Completion:
        """Write the next guess; it is written, not sampled, and says so."""
        text = self._chat.decode(request.ids_T)
        low = max((int(number) + 1 for number in re.findall(r"(\d+) is too low", text)), default=1)
        limit = int(re.findall(r"from 1 to (\d+)", text)[-1])
        high = min((int(number) - 1 for number in re.findall(r"(\d+) is too high", text)), default=limit)
        reach = self._boldness * (high - low) / 2
        drawn = np.random.default_rng(request.seed).uniform(-reach, reach)  # the request's own: the same in any batch
        turn = f"<action>guess {round((low + high) / 2 + drawn)}</action>"
        ids_T = self._chat.encode_turn(turn)
        return Completion(ids_T, engine=self.name, sampling=request.sampling, origin="demonstration")
