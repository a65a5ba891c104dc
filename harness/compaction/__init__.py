"""Rewriting a conversation that has become long: a declared rewrite with a typed edge, never a silent cut."""

from agentgym_tok.harness.compaction.compaction import Compaction, Draw, Rewrite, Trigger
from agentgym_tok.harness.compaction.strip_reasoning import StripReasoning
from agentgym_tok.harness.compaction.summary import SummaryCompaction
from agentgym_tok.harness.compaction.window import WindowCompaction

__all__ = ["Compaction", "Draw", "Rewrite", "StripReasoning", "SummaryCompaction", "Trigger", "WindowCompaction"]
