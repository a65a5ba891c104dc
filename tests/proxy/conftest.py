"""Fixtures of the proxy's tests."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture
def proxied(tmp_path: Path) -> Callable[..., Any]:
    """Return what puts a proxy in front of a policy or a script, as a context manager."""
    from proxying import proxied

    return functools.partial(proxied, tmp_path / "run")
