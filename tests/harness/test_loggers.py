"""Loggers: curves of episodes, and never the end of a run."""

import json
import logging
import sqlite3
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from play import CHAT, Lines, make_env

from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.harness import Harness
from agentgym_tok.harness.loggers import Logger, TensorBoardLogger, TrackioLogger, WandbLogger
from agentgym_tok.trace import Episode


def play(logger: object, episodes: int = 3) -> list[Episode]:
    return Harness("expert", CHAT, observers=[logger]).run_many(make_env, range(episodes), concurrency=1)


class Kept(Logger):
    """Keep what is written."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)
        self.written: dict[int, Mapping[str, float]] = {}
        self.finished = 0

    def write(self, found: Mapping[str, float], number: int) -> None:
        self.written[number] = found

    def finish(self) -> None:
        self.finished += 1


def test_each_episode_and_the_mean_of_the_last_ones_are_written() -> None:
    with Kept(window=2, first=10) as logger:
        episodes = play(logger, 4)
    turns = [len(episode.turns) for episode in episodes]
    assert len(set(turns)) > 1
    assert [found["episode/turns"] for found in logger.written.values()] == turns
    means = [turns[0], *[sum(turns[place - 1 : place + 1]) / 2 for place in range(1, 4)]]
    assert [found["mean/turns"] for found in logger.written.values()] == means
    assert list(logger.written) == [10, 11, 12, 13]
    assert logger.finished == 1


def test_a_mean_is_of_the_episodes_that_have_the_figure() -> None:
    logger = Kept()
    play(logger, 2)
    Harness(Lines(), CHAT, observers=[logger]).run(make_env(max_steps=1), task=0)
    assert "mean/trained_share" not in logger.written[0]
    assert logger.written[2]["mean/trained_share"] == 1


def test_a_logger_that_fails_warns_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Kept):
        def write(self, found: Mapping[str, float], number: int) -> None:
            super().write(found, number)
            if number:
                raise OSError("no space")

    with Full() as logger:
        assert len(play(logger, 4)) == 4
    assert list(logger.written) == [0, 1]
    (said,) = caplog.records
    assert (said.levelno, said.name) == (logging.WARNING, "agentgym_tok.harness.loggers")
    assert said.getMessage() == "Full failed at episode 1, and writes no more: OSError: no space"


def test_an_end_that_fails_warns_too(caplog: pytest.LogCaptureFixture) -> None:
    class Lost(Kept):
        def finish(self) -> None:
            raise ConnectionError("no network")

    with Lost() as logger:
        play(logger, 1)
    logger.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_nothing_is_written_after_the_end() -> None:
    logger = Kept()
    logger.close()
    logger.close()
    play(logger, 1)
    assert (logger.written, logger.finished) == ({}, 1)


@pytest.mark.parametrize("options", [{"window": 0}, {"first": -1}])
def test_numbers_that_are_too_small_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="nothing can be logged"):
        Kept(**options)


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: TensorBoardLogger("nowhere"), "tensorboardX", "tensorboard"),
        (lambda: WandbLogger("p"), "wandb", "wandb"),
        (lambda: TrackioLogger("p"), "trackio", "trackio"),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    make: Any, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=package) as caught:
        make()
    assert caught.value.fix == f'pip install "agentgym-tok[{extra}]"'


# ---- the adapters, against what the packages offer (wandb 0.31, trackio 0.43), and against the packages themselves


class Run:
    """What `init` of both returns, as far as it is used."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.logged: list[tuple[dict[str, float], int | None]] = []
        self.axes: dict[str, str] = {}
        self.finished = False

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append((metrics, step))

    def finish(self) -> None:
        self.finished = True


def test_wandb_gets_the_number_of_episodes_as_an_axis_and_keeps_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=Run))
    with WandbLogger("p", mode="offline", name="a") as logger:
        play(logger, 2)
    assert logger.run.options == {"project": "p", "mode": "offline", "name": "a"}
    assert logger.run.axes == {"episode/*": "episodes", "mean/*": "episodes"}
    assert [(found["episodes"], step) for found, step in logger.run.logged] == [(0, None), (1, None)]
    assert logger.run.logged[0][0]["episode/return"] == 1
    assert logger.run.finished


def test_trackio_gets_the_number_of_episodes_as_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=Run))
    with TrackioLogger("p", name="a") as logger:
        play(logger, 2)
    assert logger.run.options == {"project": "p", "name": "a"}
    assert [step for _, step in logger.run.logged] == [0, 1]
    assert logger.run.logged[1][0]["mean/return"] == 1
    assert logger.run.finished


def points(folder: Path) -> Iterator[tuple[str, int, float]]:
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.iterdir()
    data = file.read_bytes()
    while data:  # length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        yield from ((value.tag, event.step, value.simple_value) for value in event.summary.value)
        data = data[16 + length :]


def test_tensorboard_files_hold_every_point(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    with TensorBoardLogger(tmp_path, window=2) as logger:
        episodes = play(logger, 3)
    found = {(name, number): value for name, number, value in points(tmp_path)}
    assert [found["episode/turns", number] for number in range(3)] == [len(episode.turns) for episode in episodes]
    assert found["mean/return", 2] == (episodes[1].return_ + episodes[2].return_) / 2


def test_trackio_keeps_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="the extra trackio is not installed")
    with TrackioLogger("p", name="a") as logger:
        episodes = play(logger, 3)
    with sqlite3.connect(tmp_path / "p.db") as database:
        cells = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    turns = {step: json.loads(metrics)["episode/turns"] for step, metrics in cells}
    assert turns == {place: len(episode.turns) for place, episode in enumerate(episodes)}


def test_wandb_takes_it_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with WandbLogger("p", mode="offline", dir=str(tmp_path)) as logger:
        episodes = play(logger, 2)
        assert logger.run.summary["episode/turns"] == len(episodes[1].turns)
    assert list(tmp_path.rglob("*.wandb"))
    assert not [record for record in caplog.records if record.name == "agentgym_tok.harness.loggers"]
