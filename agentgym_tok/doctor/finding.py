"""What one check found, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentgym_tok.errors import AgentGymTokError

__all__ = ["Finding", "Status", "broken", "failed", "ok", "skipped", "warning"]

Status: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what one check found.

    Args:
        status: `skipped` where nothing could be known, and `found` says why.
        found: One sentence, with figures.
        advice: What to do; empty where nothing is to be done.
        figures: The figures alone, for programs.
        name: Of the check.
    """

    status: Status
    found: str
    advice: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    name: str = ""


def ok(found: str, **figures: float) -> Finding:
    """Return that all is well."""
    return Finding("ok", found, figures=figures)


def warning(found: str, advice: str, **figures: float) -> Finding:
    """Return what a user should know."""
    return Finding("warning", found, advice, figures)


def failed(found: str, advice: str, **figures: float) -> Finding:
    """Return what must not be."""
    return Finding("failed", found, advice, figures)


def skipped(why: str, advice: str = "") -> Finding:
    """Return that nothing could be known."""
    return Finding("skipped", why, advice)


def broken(error: Exception) -> Finding:
    """Return what a check found that was broken off by an error."""
    if isinstance(error, AgentGymTokError):
        parts = (error.what, error.got and f"got {error.got}", error.expected and f"expected {error.expected}")
        return failed("; ".join(str(part) for part in parts if part), error.fix or _LOG_ADVICE)
    return failed(f"{type(error).__name__}: {error}", _LOG_ADVICE)


_LOG_ADVICE = "look into the engine's own log"
