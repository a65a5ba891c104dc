"""Small random models, written without torch."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import random_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model of two layers, whose heads share keys in pairs."""
    return random_model.write(tmp_path_factory.mktemp("model"))
