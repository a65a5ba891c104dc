"""ALFWorld: household tasks in a text world."""

from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.alfworld.game import Game, GameSet, SingleGame
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.alfworld.synth import SynthGames

__all__ = [
    "TASK_TYPES",
    "ALFWorldEngine",
    "ALFWorldEnv",
    "Game",
    "GameSet",
    "OfficialGames",
    "SingleGame",
    "SynthGames",
]
