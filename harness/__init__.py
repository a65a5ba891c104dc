"""The loop that drives a policy through a world: compaction, retries, tools, subagents, and every turn in the log."""

from agentgym_tok.harness.budget import Budget
from agentgym_tok.harness.compaction import (
    Compaction,
    Draw,
    Rewrite,
    StripReasoning,
    SummaryCompaction,
    Trigger,
    WindowCompaction,
)
from agentgym_tok.harness.conversation import Conversation, Exchange
from agentgym_tok.harness.harness import Harness
from agentgym_tok.harness.observers import Observer
from agentgym_tok.harness.retries import Retries
from agentgym_tok.harness.subagents import Subagents
from agentgym_tok.harness.tools import Tool, Toolbox

__all__ = [
    "Budget",
    "Compaction",
    "Conversation",
    "Draw",
    "Exchange",
    "Harness",
    "Observer",
    "Retries",
    "Rewrite",
    "StripReasoning",
    "Subagents",
    "SummaryCompaction",
    "Tool",
    "Toolbox",
    "Trigger",
    "WindowCompaction",
]
