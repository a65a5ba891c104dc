"""Engines and experts that answer contexts with turns."""

from agentgym_tok.policies.base import BasePolicy, CallablePolicy
from agentgym_tok.policies.expert import ExpertPolicy, ExplorerPolicy, RandomPolicy
from agentgym_tok.policies.load import load_policy

__all__ = ["BasePolicy", "CallablePolicy", "ExpertPolicy", "ExplorerPolicy", "RandomPolicy", "load_policy"]
