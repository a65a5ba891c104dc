"""Messages to ids and back."""

from agentgym_tok.chat.bridge import Refusal
from agentgym_tok.chat.detokenize import Detokenizer
from agentgym_tok.chat.dialects.tags import Tag
from agentgym_tok.chat.format import ChatFormat
from agentgym_tok.chat.streaming import TurnStream, opens_reasoning

__all__ = ["ChatFormat", "Detokenizer", "Refusal", "Tag", "TurnStream", "opens_reasoning"]
