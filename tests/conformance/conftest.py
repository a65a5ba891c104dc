"""Fixtures of the conformance tests; the suite itself is a package beside this file."""

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

if TYPE_CHECKING:
    from tito_conformance.engine import FakeEngine
    from tito_conformance.models import Model

REAL = ("qwen2_5", "qwen3", "deepseek_v3")


@pytest.fixture(scope="session")
def models() -> "dict[str, Model]":
    """Return the models that the suite builds."""
    from tito_conformance.models import BUILT, built

    return {name: built(name) for name in BUILT}


@pytest.fixture(scope="session")
def tokenizers_folder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with real tokenizers."""
    target = tmp_path_factory.mktemp("tokenizers")
    for name in REAL:
        with tarfile.open(shared / "tokenizers" / f"{name}.tar.xz") as archive:
            archive.extractall(target, filter="data")
    return target


@pytest.fixture(scope="session")
def real_models(tokenizers_folder: Path) -> "dict[str, Model]":
    """Return models of real tokenizers."""
    from tito_conformance.models import read_model

    return {name: read_model(tokenizers_folder / name, name) for name in REAL}


@pytest.fixture(scope="module")
def engine(models: "dict[str, Model]") -> "Iterator[FakeEngine]":
    """Yield an engine that serves the built models."""
    from tito_conformance.engine import FakeEngine

    with FakeEngine(list(models.values())) as engine:
        yield engine
