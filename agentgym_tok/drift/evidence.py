"""What a record holds beside ids and messages, and what is asked of the text pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.tokens import Ids
from agentgym_tok.types import Message

__all__ = ["Evidence"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold it; turns go by their indexes.

    Args:
        history: The conversation as a harness kept it; None rebuilds it from the turns.
        tools: JSON schemas that the text pipeline declares; None takes those of the trace.
        streamed: int32 [T], ids that arrived through a stream.
        logprobs: How many log-probabilities came.
        special_tokens: The text pipeline encodes a rendering with the tokenizer's special tokens around it.
    """

    history: tuple[Message, ...] | None = None
    tools: tuple[Mapping[str, Any], ...] | None = None
    streamed: Mapping[int, Ids] = field(default_factory=dict)
    logprobs: Mapping[int, int] = field(default_factory=dict)
    special_tokens: bool = False
