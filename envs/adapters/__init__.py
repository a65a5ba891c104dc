"""Environments of other libraries as token environments: `verifiers` and OpenEnv."""

from agentgym_tok.envs.adapters.openenv import OpenEnvEngine, OpenEnvWorld
from agentgym_tok.envs.adapters.verifiers import VerifiersEngine, VerifiersWorld

__all__ = ["OpenEnvEngine", "OpenEnvWorld", "VerifiersEngine", "VerifiersWorld"]
