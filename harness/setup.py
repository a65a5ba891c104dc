"""What all episodes of a run have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_tok.harness.compaction import Compaction
from agentgym_tok.harness.observers import Observer
from agentgym_tok.harness.retries import Retries
from agentgym_tok.harness.subagents import Subagents
from agentgym_tok.harness.tools import Toolbox
from agentgym_tok.policies.asker import Asker
from agentgym_tok.trace import TraceStore
from agentgym_tok.types import Sampling

__all__ = ["Setup"]

_NO_RETRIES = Retries()


@dataclass(frozen=True, slots=True)
class Setup:
    """Hold what all episodes of a run have in common.

    Args:
        asker: The policy.
        sampling: How turns are drawn.
        hints: Give experts what they may know.
        store: Where turns go.
        compaction: Rewrites conversations.
        retries: What is tried again.
        tools: Tools beside the world.
        subagents: Lets the policy open children.
        turn_timeout_s: Longest wait for one answer of the policy.
        observers: Watch.
    """

    asker: Asker
    sampling: Sampling
    hints: bool = False
    store: TraceStore | None = None
    compaction: Compaction | None = None
    retries: Retries = _NO_RETRIES
    tools: Toolbox | None = None
    subagents: Subagents | None = None
    turn_timeout_s: float | None = None
    observers: Sequence[Observer] = ()
