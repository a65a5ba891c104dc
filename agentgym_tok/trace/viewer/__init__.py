"""A run as one HTML page."""

from agentgym_tok.trace.viewer.view import DriftMark, page_policy, write_view

__all__ = ["DriftMark", "page_policy", "write_view"]
