"""Settings that ship: those of SDAR's paper and scripts, and small ones for a CPU."""

from importlib.resources import files
from pathlib import Path

__all__ = ["PRESETS"]

PRESETS = Path(str(files("agentgym_tok.learner") / "presets"))
"""Folder of TOML files; the name of a preset is that of its file."""
