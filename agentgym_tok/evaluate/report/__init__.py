"""Reports of runs: a page with tables, figures and links into traces, and a file for each of them."""

from agentgym_tok.evaluate.report.folder import write_report

__all__ = ["write_report"]
