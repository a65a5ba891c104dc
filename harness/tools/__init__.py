"""Tools: plain typed functions that a policy may call, and the box that answers its calls.

The Search-QA retrievers become a tool by `agentgym_tok.harness.tools.retriever.search_tool`.
"""

from agentgym_tok.harness.tools.calculator import calculator
from agentgym_tok.harness.tools.notebook import Notebook
from agentgym_tok.harness.tools.tool import Tool
from agentgym_tok.harness.tools.toolbox import Toolbox, ToolResult

__all__ = ["Notebook", "Tool", "ToolResult", "Toolbox", "calculator"]
