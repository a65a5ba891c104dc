"""Reading and writing skill banks by name or path."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

from agentgym_tok.errors import unknown_name
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.markdown import read_markdown, write_markdown
from agentgym_tok.skills.published import CategoryKey, read_published, write_published

__all__ = ["SHIPPED", "load_bank", "save_bank"]

SHIPPED = ("alfworld", "webshop", "searchqa")
"""Names of the banks that come with the library, in its own words."""


def load_bank(bank: str | Path) -> SkillBank:
    """Return a bank.

    Args:
        bank: One of `SHIPPED`; or a JSON file in the published form; or a folder of markdown files with a
            `skill_mapping.json`.

    Raises:
        UnknownName: No bank of this name is shipped, and there is no such file.
        DataMissing: There is no such file, or one that a mapping names is missing.
        DataCorrupt: It is no skill bank; the error names the place.
    """
    path = Path(bank)
    if str(bank) in SHIPPED:
        return read_published(Path(str(files("agentgym_tok.skills") / "banks" / f"{bank}.json")))
    if len(path.parts) == 1 and not path.suffix and not path.exists():
        raise unknown_name("skill bank", str(bank), SHIPPED, where="load_bank")
    return read_markdown(path) if path.is_dir() else read_published(path)


def save_bank(
    bank: SkillBank,
    path: str | Path,
    form: Literal["json", "markdown"] = "json",
    *,
    key: CategoryKey = "task_specific_skills",
) -> None:
    """Write a bank; `load_bank` gives an equal one back.

    Args:
        bank: The bank.
        path: The file, or the folder of the markdown form.
        form: `"json"` is the published file, `"markdown"` a folder of files.
        key: Where the JSON has the skills by category.

    Raises:
        ConfigError: It cannot be written.
    """
    if form == "json":
        write_published(bank, Path(path), key)
    else:
        write_markdown(bank, Path(path))
