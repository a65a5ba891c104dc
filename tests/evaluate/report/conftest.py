"""Runs to report: one that was played by a policy that writes markup, and results that nobody played."""

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.evaluate import EpisodeResult, Evaluation, Part, RunResults, macro_of, passes_of, scores_of
from agentgym_tok.evaluate.provenance import MadeBy
from agentgym_tok.evaluate.run_results import PartResults

TRICK = '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2">\u202egnirts |*$x^2$'
TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def browsers() -> ModuleType:
    """Return the module that drives a browser for the trace viewer's tests."""
    spec = importlib.util.spec_from_file_location("browsers", TESTS / "trace" / "viewer" / "test_view_browser.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser(browsers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = browsers.find_chromium()
    if program is None:
        pytest.skip("no Chromium: install one, or set AGENTGYM_TOK_CHROMIUM to the program")
    started = browsers.Chromium(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, builtin: ChatFormat) -> tuple[Path, Path]:
    """Play two worlds with a good policy, and with one that writes markup and fails now and then."""
    folder = tmp_path_factory.mktemp("runs")
    parts = [
        Part("home", lambda: ALFWorldEnv(builtin, split="valid_unseen", max_steps=16), episodes=6, samples=2),
        Part("shop", lambda: WebShopEnv(builtin, split="eval", max_steps=4), episodes=4),
    ]
    Evaluation(parts, "explorer", builtin, folder / "good").run()
    calls = 0

    def bad(_ids: Sequence[int]) -> Any:
        nonlocal calls
        calls += 1
        if calls % 23 == 0:
            raise RuntimeError(TRICK)
        return builtin.encode(f"<action>{TRICK}</action>")

    Evaluation(parts, bad, builtin, folder / "bad", concurrency=1).run()
    return folder / "good", folder / "bad"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the figures of a training run, the last line cut off."""
    folder = tmp_path_factory.mktemp("trained") / "sdar"
    folder.mkdir()
    lines = []
    for step in range(1, 401):
        line = {"step": step, "version": str(step), "episodes": 16 * step, "loss": 2 * math.exp(-step / 100)}
        line |= {"rollouts/success": step / 400, "teacher/gap_mean": None if step == 7 else 0.25, "sdar/gate_mean": 0.5}
        lines.append(json.dumps(line | ({"evaluation/success": 0.3} if step % 100 == 0 else {})))
    (folder / "figures.jsonl").write_text("\n".join(lines) + '\n{"step": 401, "epis')
    (folder / "config.json").write_text(json.dumps({"world": "alfworld", "model": TRICK, "objective": "sdar"}))
    return folder


@pytest.fixture(scope="session")
def write_results() -> Callable[..., Path]:
    """Return what writes results that nobody played: `write_results(folder, episodes, name="home")`."""

    def write(folder: Path, episodes: Sequence[EpisodeResult], name: str = "home", **metrics: str) -> Path:
        made_by = MadeBy(
            content="0" * 64, begun_with=(), chat="builtin", policy="p", policy_digest=None, configuration="1" * 64
        )
        episodes = [episode.model_copy(update={"part": name}) for episode in episodes]
        tasks = {episode.task for episode in episodes}
        part = PartResults(
            name=name,
            world="alfworld",
            source="ALFWorld-synth",
            prompting="step",
            max_steps=50,
            seed=0,
            tasks=len(tasks),
            samples=max(1, len(episodes) // len(tasks)),
            tasks_digest="2" * 64,
            data_digest="3" * 64,
            metrics=metrics,
        )
        macro = macro_of(episodes, name)
        labels = dict.fromkeys(episode.label for episode in episodes)
        results = RunResults(
            library="0.1.0",
            source="ALFWorld-synth",
            fingerprint="4" * 64,
            config={"policy": "p"},
            seconds=1.5,
            parts=(part,),
            scores=tuple(scores_of(episodes, labels, name)),
            macros=() if macro is None else (macro,),
            passes=tuple(passes_of(episodes, name)),
            made_by=made_by,
            episodes=tuple(episodes),
        )
        folder.mkdir(parents=True)
        results.write(folder)
        return folder

    return write
