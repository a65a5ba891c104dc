"""Agent environments, harnesses and RL learners that talk in token ids.

Importing the package registers its worlds: `gym.make("agentgym_tok/ALFWorld-v0")`.
"""

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.envs.registration import register_all
from agentgym_tok.spaces import TokenSpace
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.types import Completion, Message, Policy, Request, Sampling, ToolCall

__all__ = [
    "ChatFormat",
    "Completion",
    "Context",
    "Message",
    "Policy",
    "Refusal",
    "Request",
    "Root",
    "Sampling",
    "Span",
    "TokenSpace",
    "ToolCall",
]

__version__ = "0.1.0"

register_all()
