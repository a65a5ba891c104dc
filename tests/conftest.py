"""Fixtures for all tests: where the shared data stands."""

import os
from pathlib import Path

import hypothesis
import pytest

# Machines of CI are slow and shared: a test's time says nothing, its answer does.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

ROOT = Path(__file__).resolve().parents[1]


def _shared() -> Path:
    return Path(os.environ.get("AGENTGYM_TOK_SHARED") or ROOT.parent / "shared")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data and golden records, or skip."""
    folder = _shared()
    if not folder.is_dir():
        pytest.skip(
            f"no shared data at {folder}: set AGENTGYM_TOK_SHARED to the folder that holds alfworld/, tokenizers/, ..."
        )
    return folder
