"""What made a score: versions and digests, enough to tell whether two scores can be compared."""

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from agentgym_tok.config import Config
from agentgym_tok.policies.options import split_options

__all__ = ["MadeBy", "content_digest", "json_digest", "policy_digest"]

_CODE = frozenset({".css", ".html", ".jinja", ".js", ".json", ".py", ".toml"})
_ENGINES = ("vllm",)
"""Packages that a score may depend on, and which are no requirement of any extra."""


class MadeBy(Config):
    """Say what made a score."""

    content: str = Field(description="digest of the library's own files, whatever git says of them")
    begun_with: tuple[str, ...] = Field(description="the same, when the trace and its shards were begun")
    chat: str = Field(description="chat format: builtin, a folder or an id")
    policy: str = Field(description="its name")
    policy_digest: str | None = Field(description="of the files of a local model or Python module; None elsewhere")
    weight_versions: tuple[str, ...] = Field(default=(), description="that turns name, where the engine says them")
    configuration: str = Field(description="digest of `config`, without what changes no score")
    python: str = Field(default_factory=platform.python_version)
    platform: str = Field(default_factory=platform.platform)
    packages: dict[str, str] = Field(default_factory=lambda: dict(packages()), description="versions that are here")


def content_digest() -> str:
    """Return the sha256 of all files of the library, names and bytes, 64 hex digits."""
    root = Path(str(files("agentgym_tok")))
    found = sorted(path.relative_to(root).as_posix() for path in _walk(root) if path.suffix in _CODE)
    hasher = hashlib.sha256()
    for name in found:
        hasher.update(f"{name}\0".encode())
        hasher.update(hashlib.sha256((root / name).read_bytes()).digest())
    return hasher.hexdigest()


def policy_digest(name: str) -> str | None:
    """Return the sha256 of what a policy's name stands for on this machine: a model's files, or a Python module.

    Args:
        name: As `load_policy` takes it.

    Returns:
        64 hex digits; None where the name stands for no file here: a server, a name on the hub, a built-in policy.
    """
    kind, _, target = split_options(name)[0].partition(":")
    if not target:
        return None
    place = _module_file(target.partition(":")[0]) if kind == "python" else Path(target)
    if place is not None and place.is_file():
        return _file(place)
    if place is None or not place.is_dir():
        return None
    hasher = hashlib.sha256()
    for file in sorted(path for path in place.iterdir() if path.is_file()):
        hasher.update(f"{file.name}\0{_file(file)}\n".encode())
    return hasher.hexdigest()


def json_digest(value: Mapping[str, Any] | Iterable[Any]) -> str:
    """Return the sha256 of a JSON value, keys in order, 64 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def packages() -> Iterable[tuple[str, str]]:
    """Yield the packages that the library can use and that are installed here, with their versions."""
    try:
        required = importlib.metadata.requires("agentgym-tok") or []
    except importlib.metadata.PackageNotFoundError:  # a copy that nobody installed
        required = []
    used = (line for line in required if not re.search(r"extra\s*==\s*['\"]dev['\"]", line))
    names = {match[0] for line in used if (match := re.match(r"[\w.-]+", line))}
    for name in sorted({*names, *_ENGINES} - {"agentgym-tok"}):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _module_file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # the package around it is gone, or it was made by hand
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _walk(folder: Path) -> Iterable[Path]:
    # Not `rglob`: it leaves out what stands behind links, as two folders of a checkout do.
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
