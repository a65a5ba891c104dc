"""The native engine against the stock one, in lockstep; and how the stock one behaves as a guest in our process."""

import gc
import importlib
import os
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym_tok.envs.alfworld import textworld
from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game, SingleGame
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.alfworld.problem import TASK_TYPES
from agentgym_tok.envs.alfworld.textworld import StockEngine
from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.errors import CloneUnsupported, DataMissing, MissingExtra, ResetNeeded, WorldError

# The stock engine and what it imports leave files open and use what Python will remove one day.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def stock() -> None:
    pytest.importorskip("alfworld", reason="needs the extra alfworld")


@pytest.fixture
def one(stock: None, official: Path) -> StockEngine:
    games = OfficialGames("valid_seen", official)
    return StockEngine(SingleGame(games.game(games.tasks()[0])))


def next_command(rng: random.Random, seen: TextObservation, expert: str | None) -> str:
    """Choose as a player might: along the walkthrough, with a liking for what is not a mere walk, or wrongly."""
    if expert is not None and rng.random() < 0.3:
        return expert
    if rng.random() < 0.1:
        some = rng.choice(seen.admissible_commands)
        return rng.choice(
            ["", "put a in/on b", "go to nowhere 1", some.upper(), some.replace(" ", "  ", 1), f" {some}\n"]
        )
    busy = [command for command in seen.admissible_commands if not command.startswith(("go to", "help", "inventory"))]
    return rng.choice(busy if rng.random() < 0.6 else seen.admissible_commands)


@pytest.mark.stock
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_both_engines_say_the_same_in_lockstep(stock: None, official: Path, task_type: str) -> None:
    games = OfficialGames("valid_unseen", official)
    task = next(task for task in games.tasks() if f"/{task_type}-" in task)
    native, other = ALFWorldEngine(games), StockEngine(games)
    for seed in (None, 1):
        seen = native.reset(task)
        assert seen == other.reset(task)
        assert native.task_info() == other.task_info()
        rng = random.Random(seed)
        while not seen.terminated and (seed is None or rng.random() < 0.95):
            expert = native.expert_command()
            command = expert or "" if seed is None else next_command(rng, seen, expert)
            assert seed is not None or other.expert_command() == expert
            seen = native.step(command)
            assert seen == other.step(command), command
        assert seen.success or seed is not None


@pytest.mark.stock
def test_it_is_a_text_engine_that_ends_at_the_win(one: StockEngine) -> None:
    assert isinstance(one, TextEngine)
    with pytest.raises(ResetNeeded):
        one.step("look")
    with pytest.raises(ResetNeeded):
        one.task_info()
    seen = one.reset()
    while not seen.terminated:
        seen = one.step(one.expert_command() or "")
    assert (seen.reward, seen.success) == (1.0, True)
    assert one.expert_command() is None
    with pytest.raises(ResetNeeded):
        one.step("look")


@pytest.mark.stock
def test_two_engines_in_one_process_do_not_disturb_each_other(stock: None, official: Path) -> None:
    games = OfficialGames("valid_unseen", official)
    engines = [StockEngine(games), StockEngine(games)]
    natives = [ALFWorldEngine(games), ALFWorldEngine(games)]
    for engine, native, task in zip(engines, natives, games.tasks()[:2], strict=True):
        assert engine.reset(task) == native.reset(task)
    for _ in range(3):
        for engine, native in zip(engines, natives, strict=True):
            command = native.expert_command() or ""
            assert engine.step(command) == native.step(command)


@pytest.mark.stock
def test_an_engine_leaves_its_library_to_the_next_one(stock: None, official: Path) -> None:
    games = OfficialGames("valid_seen", official)
    libraries = set()
    for _ in range(3):
        engine = StockEngine(games)
        engine.reset()
        libraries.add(id(engine._env.unwrapped.downward_lib))
        del engine
        gc.collect()
    # TextWorld's parser still holds on to its last caller, so two take turns.
    assert len(libraries) <= 2


@pytest.mark.stock
def test_the_process_is_left_as_it_was(
    stock: None, official: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    arguments, out = list(sys.argv), sys.stdout
    monkeypatch.chdir(tmp_path)
    games = OfficialGames("valid_seen", official)
    StockEngine(games).reset()
    assert (sys.argv, sys.stdout) == (arguments, out)
    assert "ALFWORLD_DATA" not in os.environ
    assert not list(tmp_path.iterdir())


@pytest.mark.stock
def test_it_refuses_to_be_copied(one: StockEngine) -> None:
    with pytest.raises(CloneUnsupported, match="native engine"):
        one.clone()
    with pytest.raises(CloneUnsupported):
        pickle.dumps(one)


@pytest.mark.stock
def test_a_game_without_a_file_is_refused(stock: None, kitchen: Callable[..., Game]) -> None:
    with pytest.raises(DataMissing, match="native engine"):
        StockEngine(SingleGame(kitchen())).reset()


@pytest.mark.stock
def test_a_failure_of_the_stock_engine_is_one_of_the_world(
    stock: None, write_game: Callable[..., Path], tmp_path: Path
) -> None:
    engine = StockEngine.from_file(write_game(tmp_path))
    with pytest.raises(WorldError) as caught:
        engine.reset()
    assert caught.value.__cause__ is not None
    with pytest.raises(ResetNeeded):
        engine.step("look")


def test_without_the_stock_engine_the_command_that_helps_is_named(
    monkeypatch: pytest.MonkeyPatch, kitchen: Callable[..., Game]
) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    monkeypatch.setattr(textworld, "_left_behind", [])
    with pytest.raises(MissingExtra) as caught:
        StockEngine(SingleGame(kitchen()))
    assert caught.value.fix == 'pip install "agentgym-tok[alfworld]"'


@pytest.mark.stock
def test_the_benchmark_can_be_run_where_the_stock_engine_is(stock: None) -> None:
    # Its environment holds little else of what this library can use.
    assert importlib.import_module("agentgym_tok.cli.bench").run is not None
