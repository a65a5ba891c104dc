"""What a turn says while it is still being drawn, in pieces that clients understand."""

from dataclasses import dataclass
from typing import TypeAlias

from agentgym_tok.types import CallStatus

__all__ = ["CallArguments", "CallBegun", "CallEnded", "ReasoningDelta", "TextDelta", "TurnDelta"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Hold the next piece of what is said outside reasoning and calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Hold the next piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Say that a call has begun.

    Args:
        index: Place among the turn's calls, from 0.
        name: The tool.
        id: The call's id where the dialect has one; empty where whoever serves the client gives it one.
    """

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Hold the next piece of a call's arguments, as JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """Say how a call ended."""

    index: int
    status: CallStatus


TurnDelta: TypeAlias = TextDelta | ReasoningDelta | CallBegun | CallArguments | CallEnded
