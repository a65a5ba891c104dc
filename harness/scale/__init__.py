"""Episodes on a Ray cluster: workers with engines, worlds and shards of their own."""

from agentgym_tok.harness.scale.cluster import RayOptions
from agentgym_tok.harness.scale.ray_workers import RayWorkers

__all__ = ["RayOptions", "RayWorkers"]
