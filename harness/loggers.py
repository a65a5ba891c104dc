"""Episodes as curves: observers that write figures to TensorBoard, Weights & Biases or Trackio."""

import importlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Self

from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.harness.figures import figures
from agentgym_tok.harness.observers import Observer
from agentgym_tok.trace import Episode

__all__ = ["Logger", "TensorBoardLogger", "TrackioLogger", "WandbLogger"]

_LOG = logging.getLogger(__name__)


class Logger(Observer, ABC):
    """Write the figures of each rollout when it ends, `episode/NAME`, and their means, `mean/NAME`.

    Curves have the number of episodes as their axis. Where writing fails, one warning says so, nothing more is written,
    and the run goes on. Use it as a context, or call `close` after the run. One of your own needs `write` alone.

    Args:
        window: Means are of so many last episodes.
        first: Number of the first episode; more than 0 where a run goes on.

    Raises:
        ConfigError: A number is too small.
    """

    def __init__(self, *, window: int = 100, first: int = 0) -> None:
        if window < 1 or first < 0:
            expected = "a window of 1 or more, and a number that is not negative"
            raise ConfigError(
                "nothing can be logged so", where=type(self).__name__, got=f"{window=}, {first=}", expected=expected
            )
        self._window, self._number = window, first
        self._last: dict[str, deque[float]] = {}
        self._broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def write(self, found: Mapping[str, float], number: int) -> None:
        """Write figures by their names, with the number of the episode; what it raises is a warning."""

    def finish(self) -> None:
        """Write what is still waiting; called once, at the end."""

    def on_episode(self, episode: Episode) -> None:
        """Write a rollout's figures."""
        if self._broken:
            return
        try:
            self.write(self._with_means(figures(episode)), self._number)
        except Exception as error:  # noqa: BLE001  # a curve is worth no run
            self._warn(error)
        self._number += 1

    def close(self) -> None:
        """Write what is still waiting, and write no more."""
        if self._broken:
            return
        try:
            self.finish()
        except Exception as error:  # noqa: BLE001  # the run has its results
            self._warn(error)
        self._broken = True

    def _with_means(self, found: Mapping[str, float]) -> dict[str, float]:
        for name, value in found.items():
            self._last.setdefault(name, deque(maxlen=self._window)).append(value)
        own = {f"episode/{name}": value for name, value in found.items()}
        return own | {f"mean/{name}": fmean(self._last[name]) for name in found}

    def _warn(self, error: Exception) -> None:
        self._broken = True
        _LOG.warning(
            "%s failed at episode %d, and writes no more: %s: %s",
            type(self).__name__,
            self._number,
            type(error).__name__,
            error,
        )


class TensorBoardLogger(Logger):
    """Write event files for TensorBoard (extra `tensorboard`).

    Args:
        folder: Where they go; `tensorboard --logdir FOLDER` shows them.
        window: Means are of so many last episodes.
        first: Number of the first episode.

    Raises:
        MissingExtra: tensorboardX, which needs no torch, is not installed.
    """

    def __init__(self, folder: str | Path, *, window: int = 100, first: int = 0) -> None:
        super().__init__(window=window, first=first)
        self._writer = _package("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def write(self, found: Mapping[str, float], number: int) -> None:
        """Write one point of each curve."""
        for name, value in found.items():
            self._writer.add_scalar(name, value, number)

    def finish(self) -> None:
        """Write what is still waiting."""
        self._writer.close()


class WandbLogger(Logger):
    """Write to a run of Weights & Biases (extra `wandb`).

    The run's own steps are left alone, so that a learner can write to it too: the axis is the figure `episodes`.

    Args:
        project: The project.
        window: Means are of so many last episodes.
        first: Number of the first episode.
        options: More for `wandb.init`, such as `name="a"`, `config={...}`, `mode="offline"`.

    Attributes:
        run: What `wandb.init` returned.

    Raises:
        MissingExtra: wandb is not installed.
    """

    def __init__(self, project: str, *, window: int = 100, first: int = 0, **options: Any) -> None:
        super().__init__(window=window, first=first)
        self.run = _package("wandb", "wandb").init(project=project, **options)
        for names in ("episode/*", "mean/*"):
            self.run.define_metric(names, step_metric="episodes")

    def write(self, found: Mapping[str, float], number: int) -> None:
        """Write one point of each curve."""
        self.run.log({"episodes": number, **found})

    def finish(self) -> None:
        """Send what is still waiting."""
        self.run.finish()


class TrackioLogger(Logger):
    """Write to a run of Trackio (extra `trackio`), which keeps it on this machine.

    Args:
        project: The project.
        window: Means are of so many last episodes.
        first: Number of the first episode.
        options: More for `trackio.init`, such as `name="a"`, `config={...}`.

    Attributes:
        run: What `trackio.init` returned.

    Raises:
        MissingExtra: trackio is not installed.
    """

    def __init__(self, project: str, *, window: int = 100, first: int = 0, **options: Any) -> None:
        super().__init__(window=window, first=first)
        self.run = _package("trackio", "trackio").init(project=project, **options)

    def write(self, found: Mapping[str, float], number: int) -> None:
        """Write one point of each curve."""
        self.run.log(dict(found), step=number)

    def finish(self) -> None:
        """Write what is still waiting."""
        self.run.finish()


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        fix = f'pip install "agentgym-tok[{extra}]"'
        raise MissingExtra(f"{name} is not installed", where=f"loggers, {extra}", fix=fix) from error
