"""`bench learner`: all sides have the same gradients, and the figures say who is faster."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok.cli import bench_learner  # noqa: E402

TINY = bench_learner.Options(group=3, prompt=9, new=14, turns=3, updates=1)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rollouts_share_a_prompt_and_a_third_of_the_rest_is_the_worlds() -> None:
    rows = bench_learner._rows(TINY, 50)
    assert len({row.ids_T[:9].tobytes() for row in rows}) == 1
    assert len({row.ids_T.tobytes() for row in rows}) == 3
    mask_T = rows[0].mask_T
    assert not mask_T[:9].any()
    assert sorted(set(rows[0].turn_T[mask_T].tolist())) == [0, 1, 2]
    assert 0.5 < mask_T[9:].mean() < 0.75


@pytest.mark.parametrize("side", ["padded", "trl"])
def test_a_side_has_the_gradients_of_the_packed_one(side: bench_learner.Side, tmp_path: Path, threads: None) -> None:
    if side == "trl":
        pytest.importorskip("trl", reason="trl is not installed")
    found = {}
    for name in ("packed", side):
        figures = bench_learner._measure(name, TINY, str(tmp_path))  # type: ignore[arg-type]
        assert figures["tokens/s"] > 0
        with np.load(tmp_path / "gradients.npz") as saved:
            found[name] = {key: saved[key] for key in saved}
    assert found["packed"].keys() == found[side].keys()
    for key, value in found["packed"].items():
        np.testing.assert_allclose(value, found[side][key], atol=1e-4 * np.abs(value).max())


def test_the_command_shows_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "learner.json"
    assert bench_learner.run(TINY.model_copy(update={"out": str(file)})) == 0
    shown = capsys.readouterr().out
    assert "gradients, relative gap to padded" in shown
    figures = json.loads(file.read_text())["figures"]
    assert figures["tokens of an update"] == 3 * 23
    assert figures["gradients, relative gap to padded"] < 1e-4
    assert figures["tokens/s, times those of padded"] == pytest.approx(
        figures["tokens/s, packed"] / figures["tokens/s, padded"]
    )
