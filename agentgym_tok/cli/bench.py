"""`agentgym-tok bench WORLD`: how fast a world is, from its engine to token ids, and beside the stock engine."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import report
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import ALFWorldEngine
from agentgym_tok.envs.alfworld.env import ALFWorldEnv, make_alfworld_engine
from agentgym_tok.envs.alfworld.write_games import write_games
from agentgym_tok.envs.engine import TextEngine

__all__ = ["Options", "run"]


class Options(Config):
    """Measure a world on one core: engine steps, resets and clones, and the token environment on top.

    Commands are half the expert's, half random admissible ones. Only the calls themselves are timed, in seconds of this
    process's CPU time, so that other processes matter less. With `--against textworld` the stock engine plays the same
    games in the same run.
    """

    world: CliPositionalArg[Literal["alfworld"]] = Field(description="alfworld")
    against: Literal["textworld"] | None = Field(default=None, description="the stock engine (extra alfworld)")
    source: Literal["synth", "official"] = Field(default="synth", description="synth or official")
    split: str = Field(default="valid_unseen", description="split of the games")
    data: str | None = Field(default=None, description="folder of the official games")
    chat: list[str] = Field(default=["builtin"], description="chat formats; folders or ids of models need the extra hf")
    seconds: float = Field(default=3.0, gt=0, description="time for each figure")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    figures: dict[str, float] = {}
    with _games(options) as (source, folder):

        def engine(backend: str = "native") -> TextEngine:
            return make_alfworld_engine(source, options.split, folder, backend=backend)

        native = engine()
        steps, resets = _engine(native, options.seconds)
        figures["engine steps/s"] = steps
        figures["engine reset, us"] = 1e6 / resets
        figures["engine clone, us"] = _clone_us(native, options.seconds)
        for name in options.chat:
            chat = chat_format(name)
            for prompting in ("transcript", "step"):
                label = f"{Path(name).name}, {prompting}"
                env = ALFWorldEnv(chat, source=source, split=options.split, data=folder, prompting=prompting)
                figures[f"token steps/s, {label}"] = _tokens(env, chat, options.seconds)
                figures[f"environment clone, us, {label}"] = _clone_us(env, options.seconds / 3)
        if options.against is not None:
            steps, resets = _engine(engine(options.against), max(options.seconds, 20.0))
            figures[f"{options.against} steps/s"] = steps
            figures[f"{options.against} reset, us"] = 1e6 / resets
            figures["engine steps, times the stock engine's"] = figures["engine steps/s"] / steps
    report(f"{options.world} {source} {options.split}, CPU time", figures, options, options.out)
    return 0


@contextmanager
def _games(options: Options) -> Iterator[tuple[Literal["synth", "official"], Path | None]]:
    """Yield source and folder; the stock engine plays files only, so generated games are written for it."""
    if options.source == "synth" and options.against is not None:
        with tempfile.TemporaryDirectory() as folder:
            write_games(folder, options.split, 24, stock=True)
            yield "official", Path(folder)
    else:
        yield options.source, None if options.data is None else Path(options.data)


def _engine(engine: TextEngine, seconds: float) -> tuple[float, float]:
    """Return steps and resets a second."""
    draw = np.random.default_rng(0)
    tasks = engine.tasks()
    steps = resets = 0
    in_step = in_reset = 0.0
    while in_step < seconds and in_step + in_reset < 4 * seconds:
        task = tasks[int(draw.integers(len(tasks)))]
        engine.reset(task)  # reads or generates the game, which is no part of a reset
        observation, spent = _timed(lambda task=task: engine.reset(task))  # type: ignore[misc]
        in_reset, resets = in_reset + spent, resets + 1
        for _ in range(50):
            if observation.terminated:
                break
            command = engine.expert_command() if draw.random() < 0.5 else None
            command = (
                command or observation.admissible_commands[int(draw.integers(len(observation.admissible_commands)))]
            )
            observation, spent = _timed(lambda command=command: engine.step(command))  # type: ignore[misc]
            in_step, steps = in_step + spent, steps + 1
    return steps / in_step, resets / in_reset


def _tokens(env: ALFWorldEnv, chat: ChatFormat, seconds: float) -> float:
    """Return token steps a second."""
    draw = np.random.default_rng(0)
    env.reset(seed=0)
    steps, in_step, over = 0, 0.0, False
    while in_step < seconds:
        if over:
            env.reset()
        hints = env.hints()
        turn = hints["expert"] if draw.random() < 0.5 else None
        action_T = chat.encode_turn(turn or hints["admissible"][int(draw.integers(len(hints["admissible"])))])
        (_, _, terminated, truncated, _), spent = _timed(lambda action_T=action_T: env.step(action_T))  # type: ignore[misc]
        in_step, steps, over = in_step + spent, steps + 1, terminated or truncated
    return steps / in_step


def _clone_us(world: "ALFWorldEngine | ALFWorldEnv | TextEngine", seconds: float) -> float:
    world.reset()
    count, spent = 0, 0.0
    while spent < seconds / 10:
        _, once = _timed(world.clone)
        count, spent = count + 1, spent + once
    return 1e6 * spent / count


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start
