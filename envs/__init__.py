"""Text worlds as token-native Gymnasium environments."""

from agentgym_tok.envs.alfworld import ALFWorldEngine
from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.gym_text import GymText
from agentgym_tok.envs.pad_tokens import PadTokens
from agentgym_tok.envs.prompting import Command, Exchange, Prompting, Step, Transcript, Words
from agentgym_tok.envs.record_trace import RecordTrace
from agentgym_tok.envs.text_action import TextAction
from agentgym_tok.envs.token_env import TokenEnv

__all__ = [
    "ALFWorldEngine",
    "Command",
    "Exchange",
    "GymText",
    "PadTokens",
    "Prompting",
    "RecordTrace",
    "Step",
    "TextAction",
    "TextEngine",
    "TextObservation",
    "TokenEnv",
    "Transcript",
    "Words",
]
