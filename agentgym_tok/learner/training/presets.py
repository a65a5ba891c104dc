"""Settings that ship, by name: those of SDAR's paper and scripts, and small ones for a CPU."""

from importlib.resources import files
from pathlib import Path

from agentgym_tok.errors import DataMissing, unknown_name

__all__ = ["PRESET", "config_file", "preset_names"]

PRESET = "preset:"
"""What the name of a preset begins with, where a file could stand."""


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.suffix == ".toml")


def config_file(name: str) -> Path:
    """Return the TOML file of a preset, or the file itself.

    Args:
        name: `preset:NAME`, or the path of a file.

    Raises:
        UnknownName: There is no such preset.
        DataMissing: There is no such file.
    """
    if name.startswith(PRESET):
        known = preset_names()
        if name.removeprefix(PRESET) not in known:
            raise unknown_name("preset", name.removeprefix(PRESET), known, where="train")
        return _folder() / f"{name.removeprefix(PRESET)}.toml"
    if not Path(name).is_file():
        raise DataMissing(
            "there is no such configuration",
            where=name,
            expected=f"a TOML file, or {PRESET}NAME",
            fix="presets are " + ", ".join(preset_names()),
        )
    return Path(name)


def _folder() -> Path:
    return Path(str(files("agentgym_tok.learner") / "presets"))
