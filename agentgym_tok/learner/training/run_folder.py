"""The folder of a training run: its configuration, figures, checkpoint and models, beside its trace."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.config import differences
from agentgym_tok.errors import ConfigError, DataCorrupt

__all__ = ["RunFolder"]

_MAY_DIFFER = frozenset({"steps", "resume", "dry_run", "config", "loggers", "concurrency", "save_every", "out"})
"""Options that a run which goes on may change: they are in no result."""


class RunFolder:
    """Know where things of a run stand.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.pt"
        self.figures = self.path / "figures.jsonl"
        self.start = self.path / "start"
        """A model made from scratch."""
        self.model = self.path / "model"
        """The trained model."""
        self._config = self.path / "config.json"

    @property
    def is_begun(self) -> bool:
        """Say whether there is a run to go on with, with a checkpoint or not yet."""
        return self._config.is_file()

    def check(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """See whether a run can begin here, or go on, and write nothing.

        Args:
            config: The whole configuration, as JSON.
            resume: There is a run already, with the same configuration.

        Raises:
            ConfigError: There is a run and it shall not go on, or it was begun otherwise; or there is none to go on.
            DataCorrupt: The folder's configuration cannot be read.
        """
        others = self.path.is_dir() and any(entry != self.start for entry in self.path.iterdir())
        if others and not resume:
            raise ConfigError(
                "the run's folder is not empty",
                where=str(self.path),
                fix="choose another --out, or go on with the run by --resume",
            )
        if resume and not self.is_begun:
            raise ConfigError(
                "there is no run to go on with",
                where=str(self.path),
                expected="a folder with config.json",
                fix="name the run's folder by --out, or leave --resume out",
            )
        if resume:
            self._compare(config)

    def open(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Begin a run, or go on with one; see `check`."""
        self.check(config, resume=resume)
        self.path.mkdir(parents=True, exist_ok=True)
        self._config.write_text(json.dumps(dict(config), indent=1) + "\n", encoding="utf-8")

    @property
    def episodes(self) -> int:
        """How many rollouts the figures count so far."""
        lines = self.read_figures() if self.figures.is_file() else []
        return int(lines[-1]["episodes"]) if lines else 0

    def _compare(self, config: Mapping[str, Any]) -> None:
        try:
            begun = json.loads(self._config.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataCorrupt("a run's configuration is no JSON", where=str(self._config), got=str(error)) from error
        known = {name: value for name, value in begun.items() if name not in _MAY_DIFFER}
        given = {name: value for name, value in config.items() if name not in _MAY_DIFFER}
        # Plain options first: a loss differs where its objective does.
        for name, now, then in sorted(differences(given, known), key=lambda found: found[0].count(".")):
            raise ConfigError(
                f"the run was begun with another {name}",
                where=str(self.path),
                got=json.dumps(now),
                expected=json.dumps(then),
                fix="resume with the options that it was begun with, or choose another --out",
            )

    def cut_figures(self, step: int) -> None:
        """Take out what was written of a step and later ones, which come again."""
        if self.figures.is_file():
            lines = [line for line in self.read_figures() if line["step"] < step]
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            part = self.figures.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(self.figures)

    def read_figures(self) -> list[dict[str, Any]]:
        """Return the lines that were written whole."""
        found: list[dict[str, Any]] = []
        for line in self.figures.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # a process was killed while it wrote
                break
        return found

    def write_figures(self, step: int, version: str, episodes: int, figures: Mapping[str, float]) -> None:
        """Add a line; what is not finite is null, since JSON has no word for it."""
        values = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        line = json.dumps({"step": step, "version": version, "episodes": episodes, **values})
        with self.figures.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
