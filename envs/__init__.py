"""Text worlds as token-native Gymnasium environments."""

from agentgym_tok.envs.alfworld import ALFWorldEngine
from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.gym_text import GymText
from agentgym_tok.envs.pad_tokens import PadTokens
from agentgym_tok.envs.prompting import Command, Exchange, Prompting, Step, Transcript, Words
from agentgym_tok.envs.react import React
from agentgym_tok.envs.record_trace import RecordTrace
from agentgym_tok.envs.searchqa import SearchQAEngine
from agentgym_tok.envs.success_reward import SuccessReward
from agentgym_tok.envs.text_action import TextAction
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.envs.webshop import WebShopEngine

__all__ = [
    "ALFWorldEngine",
    "Command",
    "Exchange",
    "GymText",
    "PadTokens",
    "Prompting",
    "React",
    "RecordTrace",
    "SearchQAEngine",
    "Step",
    "SuccessReward",
    "TextAction",
    "TextEngine",
    "TextObservation",
    "TokenEnv",
    "Transcript",
    "WebShopEngine",
    "Words",
]
