"""Text worlds as token-native Gymnasium environments."""

import importlib
from typing import TYPE_CHECKING, Any

from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.gym_text import GymText
from agentgym_tok.envs.pad_tokens import PadTokens
from agentgym_tok.envs.prompting import Command, Exchange, Prompting, Step, Transcript, Words
from agentgym_tok.envs.react import React
from agentgym_tok.envs.record_trace import RecordTrace
from agentgym_tok.envs.success_reward import SuccessReward
from agentgym_tok.envs.text_action import TextAction
from agentgym_tok.envs.token_env import TokenEnv

if TYPE_CHECKING:
    from agentgym_tok.envs.alfworld import ALFWorldEngine
    from agentgym_tok.envs.searchqa import SearchQAEngine
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

_ENGINES = {"ALFWorldEngine": "alfworld", "SearchQAEngine": "searchqa", "WebShopEngine": "webshop"}


def __getattr__(name: str) -> Any:
    # Each world brings dependencies of its own, and few programs play all of them.
    if name not in _ENGINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ENGINES[name]}"), name)
