"""The loop that drives a policy through a world."""

from agentgym_tok.harness.harness import Harness

__all__ = ["Harness"]
