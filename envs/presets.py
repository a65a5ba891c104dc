"""The promptings that are asked for by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from agentgym_tok.envs.prompting import Prompting, Step, Transcript, Words
from agentgym_tok.envs.react import React
from agentgym_tok.errors import unknown_name

__all__ = ["PRESETS", "Presets", "make_prompting"]

Presets: TypeAlias = Mapping[str, Callable[[Any], Prompting]]
"""Makes a prompting of a world's words, by name."""

PRESETS: Presets = MappingProxyType({"transcript": Transcript, "step": Step, "react": React})
"""What every world has; a world may have others, or its own by these names."""


def make_prompting(prompting: str | Prompting, words: Words, presets: Presets = PRESETS) -> Prompting:
    """Return the preset of this name, or the given prompting itself.

    Raises:
        UnknownName: No preset has this name.
    """
    if not isinstance(prompting, str):
        return prompting
    if prompting not in presets:
        raise unknown_name("prompting", prompting, presets, where="prompting")
    return presets[prompting](words)
