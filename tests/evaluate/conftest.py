"""Results of episodes that nobody played."""

from collections.abc import Callable
from typing import Any

import pytest

from agentgym_tok.evaluate import EpisodeResult

PLAIN = {
    "episode": "e",
    "task": "t",
    "label": "other",
    "success": False,
    "reward": 0.0,
    "steps": 1,
    "turn_tokens": 10,
    "context_tokens": 20,
    "invalid_actions": 0,
    "format_errors": 0,
}


@pytest.fixture(scope="session")
def result() -> Callable[..., EpisodeResult]:
    """Return what makes a result: `result("Pick", success=True)`."""

    def make(label: str = "other", **parts: Any) -> EpisodeResult:
        return EpisodeResult(**{**PLAIN, "label": label, **parts})

    return make
