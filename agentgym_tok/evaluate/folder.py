"""Whether an evaluation may begin in a folder, or go on there."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.config import differences
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.parts import Share
from agentgym_tok.evaluate.shaping import shaping
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.shard import shard_paths

__all__ = ["begun_with", "check_folder"]


def check_folder(folder: Path, config: Mapping[str, Any], *, resume: bool, share: Share | None = None) -> None:
    """Refuse a folder before anything is loaded or written.

    Args:
        folder: Of the run.
        config: The whole configuration, as JSON.
        resume: There is a run of the same configuration.
        share: What this process plays; shards of other processes may stand there.

    Raises:
        ConfigError: The folder holds a run that shall not go on, or one of another configuration; or there is none to
            go on with.
        TraceError: A shard cannot be read.
    """
    shards = shard_paths(folder)
    if share is None:
        taken = folder.exists() and any(folder.iterdir())
    else:
        taken = any(path.stem == share.shard for path in shards)
    if taken and not resume:
        raise ConfigError(
            "the run's folder is not empty",
            where=str(folder),
            fix="choose another --out, or go on with the run by --resume",
        )
    if resume and not shards:
        raise ConfigError(
            "there is no run to go on with",
            where=str(folder),
            expected="a folder with shards/*.sqlite",
            fix="name the run's folder by --out, or leave --resume out",
        )
    for path, document in _documents(folder):
        for name, then, now in differences(shaping(document["config"]), shaping(config)):
            raise ConfigError(
                f"the run was begun with another {name}",
                where=str(path),
                got=repr(now),
                expected=repr(then),
                fix="go on with the options that it was begun with, or choose another --out",
            )


def begun_with(folder: Path) -> tuple[str, ...]:
    """Return the digests of the library's files with which the shards of a run were begun, each once."""
    return tuple(dict.fromkeys(document["commit"] or "unknown" for _, document in _documents(folder)))


def _documents(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield what each shard was begun with; one that was merged of several says it of all of them."""
    for path in shard_paths(folder):
        with Reader.opened(path) as reader:
            if reader is None:  # killed before its first commit
                continue
            for name, body in reader.documents().items():
                if name.partition(":")[0] == "run":
                    yield path, json.loads(body)
