"""Puts `standins` where tests find it, and workers, who inherit the path of a cluster that is started here."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def quiet_ray() -> Iterator[None]:
    """Let clusters find the stand-ins, wait longer on a busy machine, and end with the module."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield
        ray.shutdown()
