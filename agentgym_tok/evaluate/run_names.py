"""What runs are called where they stand beside each other."""

from collections.abc import Sequence
from pathlib import Path

from agentgym_tok.errors import ConfigError

__all__ = ["run_names"]


def run_names(runs: Sequence[str | Path]) -> list[tuple[Path, str]]:
    """Return the folder of each run, and the shortest end of its path that tells it apart.

    Args:
        runs: Folders of runs, or files in them such as `results.json`.

    Raises:
        ConfigError: A run is named twice, or none is.
    """
    paths = [Path(run) for run in runs]
    folders = [path.parent if path.is_file() else path for path in paths]
    parts = [folder.resolve().parts for folder in folders]
    if not parts or len(set(parts)) < len(parts):
        what = "a run is compared with itself" if parts else "there is nothing to compare"
        raise ConfigError(what, where="runs", got=", ".join(map(str, folders)) or "no run", expected="different runs")
    longest = max(map(len, parts))
    size = next(size for size in range(1, longest + 1) if len({one[-size:] for one in parts}) == len(parts))
    return [(folder, "/".join(one[-size:])) for folder, one in zip(folders, parts, strict=True)]
