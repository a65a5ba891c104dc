"""Configuration files: TOML of the user's own, or presets that ship."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.errors import ConfigError, DataMissing, unknown_name

__all__ = ["PRESET", "config_file", "laid_over", "preset_names", "read_toml"]

PRESET = "preset:"
"""What the name of a preset begins with, where a file could stand."""


def preset_names(folder: Path) -> list[str]:
    """Return the names of the presets in a folder."""
    return sorted(file.stem for file in folder.iterdir() if file.suffix == ".toml")


def config_file(name: str, presets: Path) -> Path:
    """Return the TOML file of a preset, or the file itself.

    Args:
        name: `preset:NAME`, or the path of a file.
        presets: Folder of the command's presets.

    Raises:
        UnknownName: There is no such preset.
        DataMissing: There is no such file.
    """
    known = preset_names(presets)
    if name.startswith(PRESET):
        if name.removeprefix(PRESET) not in known:
            raise unknown_name("preset", name.removeprefix(PRESET), known)
        return presets / f"{name.removeprefix(PRESET)}.toml"
    if not Path(name).is_file():
        raise DataMissing(
            "there is no such configuration",
            where=name,
            expected=f"a TOML file, or {PRESET}NAME",
            fix="presets are " + ", ".join(known),
        )
    return Path(name)


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a TOML file says.

    Raises:
        ConfigError: It is no TOML.
        DataMissing: It is not there.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataMissing("the configuration file is not there", where=str(file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("the configuration file is no TOML", where=str(file), got=str(error)) from error


def laid_over(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Lay tables over tables, and values over values.

    Args:
        values: What lies below, such as a file.
        given: What lies over it, such as options of the command.
    """
    merged = dict(values)
    for name, value in given.items():
        below = merged.get(name)
        merged[name] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
