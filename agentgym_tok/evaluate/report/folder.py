"""The folder of a report: the page, a file for every table and figure, and the traces beside it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.report.contents import Contents, contents
from agentgym_tok.evaluate.report.markdown import report_markdown
from agentgym_tok.evaluate.report.page import report_html
from agentgym_tok.evaluate.report.png import figure_png, require_matplotlib
from agentgym_tok.evaluate.report.sources import read_runs
from agentgym_tok.trace.viewer.view import write_view

__all__ = ["write_report"]

_PAGE = "report.html"
_OWN = frozenset({_PAGE, "report.md", "tables", "figures", "traces"})


def write_report(runs: Sequence[str | Path], out: str | Path, *, traces: bool = True, pictures: bool = True) -> Path:
    """Write the report of one run, or of several beside each other; the first one is what others are compared with.

    Equal runs make equal files. The folder can be moved and packed: its links are relative.

    Args:
        runs: Folders of evaluations and of training runs.
        out: The folder; an earlier report there is replaced.
        traces: Read the traces of evaluations, and write each as a page to look at.
        pictures: Write each figure as PNG too.

    Returns:
        The page, `report.html`.

    Raises:
        ConfigError: The folder holds something else or cannot be written, or a run is named twice.
        MissingExtra: Pictures need matplotlib.
        DataMissing: A folder holds no run that a report can be made of.
        DataCorrupt: What it holds cannot be read.
        TraceError: A trace cannot be read.
    """
    folder = Path(out).resolve()
    draft = folder.with_name(f"{folder.name}.part")
    _check(folder)
    _check(draft, whole=False)
    if pictures:
        require_matplotlib()
    found = contents(read_runs(runs), traces=traces)
    try:
        shutil.rmtree(draft, ignore_errors=True)
        _write(found, draft, pictures=pictures)
        if folder.exists():
            shutil.rmtree(folder)
        draft.replace(folder)  # whoever opens the report meanwhile never sees half of it
    except OSError as error:
        fix = "name a folder that can be written by --out"
        raise ConfigError("the report cannot be written", where=str(out), got=error.strerror, fix=fix) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Path(out) / _PAGE


def _check(folder: Path, *, whole: bool = True) -> None:
    """Refuse a folder that is no report; where it need not be whole, one that a killed process left is."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if (whole and names and _PAGE not in names) or names - _OWN or folder.is_file():
        raise ConfigError(
            "the folder holds something else",
            where=str(folder),
            got=", ".join(sorted(names - _OWN)[:3]) or "no report",
            expected="a folder that is empty, or holds an earlier report",
            fix="choose another --out",
        )


def _write(found: Contents, folder: Path, *, pictures: bool) -> None:
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True)
    for table in found.tables:
        _text(folder / "tables" / f"{table.name}.csv", table.csv())
    for figure in found.figures:
        _text(folder / "figures" / f"{figure.name}.csv", figure.table().csv())
        if pictures:
            (folder / "figures" / f"{figure.name}.png").write_bytes(figure_png(figure))
    viewed = {number for number, _ in found.links}
    for run in found.runs:
        if run.number in viewed:
            (folder / "traces").mkdir(exist_ok=True)
            write_view(run.folder, folder / run.view)
    _text(folder / "report.md", report_markdown(found))
    _text(folder / _PAGE, report_html(found, pictures=pictures))


def _text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")
