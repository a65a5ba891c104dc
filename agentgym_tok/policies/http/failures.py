"""How an engine behind HTTP fails: in a way that may pass, or in one that does not."""

from agentgym_tok.errors import PolicyError, TransientPolicyError

__all__ = ["Garbled", "Refused", "Transient"]


class Transient(TransientPolicyError):
    """There was no whole answer: the same request may be sent again."""

    wait_s: float | None = None
    """Seconds that the server asks to wait."""


class Garbled(Transient):
    """The answer is not what this endpoint answers."""


class Refused(PolicyError):
    """The server understood, and will not: another attempt meets the same."""

    status: int | None = None
    """Of HTTP."""
