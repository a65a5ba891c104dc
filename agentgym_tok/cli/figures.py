"""Figures of a benchmark: a table for people, and a file for those who compare."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from agentgym_tok.cli.terminal import show
from agentgym_tok.config import Config

__all__ = ["load_average", "report", "write_figures"]


def load_average() -> float:
    """Return the machine's load of the last minute; not a number where it has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def report(title: str, figures: Mapping[str, float], options: Config, out: str | None) -> None:
    """Print figures, one a line, and write them where a file is named.

    Args:
        title: Above the table; the load is added.
        figures: Values by name.
        options: What was measured.
        out: The file.
    """
    load = load_average()
    table = Table(title=f"{title}, load {load:.1f}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure, value in figures.items():
        table.add_row(figure, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    show(table)
    write_figures(out, options, {"load": load, "figures": dict(figures)})


def write_figures(out: str | None, options: Config, measured: Mapping[str, Any]) -> None:
    """Write what was measured, with its options, as JSON; nothing without a file."""
    if out is not None:
        written = {"config": options.model_dump(mode="json"), **measured}
        Path(out).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
