"""Actions as text, for people and for agents without tokens."""

import string
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Text

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError, InvalidAction
from agentgym_tok.tokens import Ids, Span

__all__ = ["TextAction"]


class TextAction(gym.Wrapper[Ids, str, Ids, Ids]):
    """Take strings, encode each one once, and mark its ids as a demonstration: no policy sampled them.

    Args:
        env: A token environment.
        commands: Strings are commands of the world, put into the prompting's form; false takes each as a whole turn.

    Raises:
        ConfigError: The environment is no token environment.
    """

    def __init__(self, env: gym.Env[Ids, Ids], *, commands: bool = True) -> None:
        super().__init__(env)  # type: ignore[arg-type]  # gymnasium asks for the outer types here
        if not isinstance(env.unwrapped, TokenEnv):
            raise ConfigError("only token environments take text", where="TextAction", got=str(env))
        self._tokens: TokenEnv = env.unwrapped
        self._commands = commands
        self.action_space = Text(min_length=1, max_length=4096, charset=string.printable)

    def step(self, action: str) -> tuple[Ids, Any, bool, bool, dict[str, Any]]:
        """Give the world one command or turn; a refused one leaves the context as it was.

        Raises:
            InvalidAction: The action is no text, or too long.
        """
        if not isinstance(action, str):
            got = type(action).__name__
            fix = "step the environment inside the wrapper with ids"
            raise InvalidAction("the action is no text", where="TextAction", got=got, expected="str", fix=fix)
        tokens = self._tokens
        ids_T = tokens.chat.encode_turn(tokens.prompting.answer(action) if self._commands else action)
        context = tokens.context
        turn = context.extend(Span(ids_T, "demonstration"))
        tokens.adopt(turn)
        try:
            return self.env.step(ids_T)  # type: ignore[arg-type]
        except Exception:
            if tokens.running and tokens.context is turn:
                tokens.adopt(context)
            raise
