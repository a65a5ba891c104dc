"""A run as a log of records, one JSON object a line; docs/design/trace.md and docs/trace.schema.json describe it."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import numpy as np

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.tokens import Logprobs
from agentgym_tok.trace.drafts import new_file
from agentgym_tok.trace.exchange.cells import Record, record_from, shown
from agentgym_tok.trace.exchange.copying import Copy, new_run
from agentgym_tok.trace.exchange.rollouts import opened
from agentgym_tok.trace.exchange.stream import stream
from agentgym_tok.trace.schema import BY_NAME

__all__ = ["Cut", "export_jsonl", "import_jsonl", "line"]

_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Cut:
    """Say where the readable part of a log ends.

    Args:
        line: Number of the first line that was not read, from 1.
        byte: Where it begins, from 0.
        reason: What is wrong with it.
        episodes: Episodes before it; the last one may be a part.
        turns: Turns before it.
    """

    line: int
    byte: int
    reason: str
    episodes: int
    turns: int

    def __str__(self) -> str:
        return f"line {self.line}, byte {self.byte}: {self.reason}"


def export_jsonl(run: str | Path, out: str | Path) -> int:
    """Write a run as a log of records.

    Args:
        run: Folder of the run.
        out: The file; nothing may stand there.

    Returns:
        Number of lines.

    Raises:
        TraceError: There is no trace, or the file cannot be written.
        TraceCorrupt: A record is damaged or missing.
    """
    count = 0
    with opened([run]) as readers, new_file(Path(out)) as draft, draft.open("wb") as file:
        for count, record in enumerate(stream(readers), 1):  # noqa: B007  # the last one is returned
            file.write(line(record))
    return count


def import_jsonl(file: str | Path, out: str | Path, *, partial: bool = False) -> Cut | None:
    """Make a run of a log of records; every record is checked against the hash chain.

    Args:
        file: The log.
        out: Folder of the new run; nothing may stand there.
        partial: Take what stands before a cut or a damaged line, up to the last whole turn; an episode that was cut is
            running then. Without it such a log is refused.

    Returns:
        Where the log was cut; None where it is whole.

    Raises:
        TraceError: The log cannot be read, its format is newer, or the run cannot be written.
        TraceCorrupt: The log is cut or damaged, and `partial` is not set; or not even its first line is one.
    """
    source = Path(file)
    try:
        lines = source.open("rb")
    except OSError as error:
        raise TraceError("the log cannot be read", where=source, got=error.strerror, fix="look at the path") from error
    with lines, new_run(out) as copy:
        cut = _fill(copy, lines)
        if cut is not None and (not partial or not copy.counts["meta"]):
            kept = f"{cut.episodes} episodes with {cut.turns} turns stand before it"
            fix = "copy the file again, or take these: --partial" if copy.counts["meta"] else "look at the file"
            raise TraceCorrupt("the log is not whole", where=source, got=cut, expected=kept, fix=fix)
    return cut


def line(record: Record) -> bytes:
    """Return a record as a line of the log."""
    document: dict[str, Any] = {"table": record.table}
    for name, value in shown(record).items():
        if isinstance(value, np.ndarray):
            document[name] = _floats(value) if value.dtype == np.float32 else value.tolist()
        else:
            document[name] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    return _JSON.encode(document).encode() + b"\n"


def _floats(logprobs_T: Logprobs) -> list[float]:
    """Return the shortest decimals that are these float32 again, also for whoever reads them as float64 first."""
    short_T = logprobs_T.astype(np.str_).astype(np.float64)
    exact = short_T.astype(np.float32) == logprobs_T
    decimals: list[float] = np.where(exact, short_T, logprobs_T.astype(np.float64)).tolist()
    return decimals


def _fill(copy: Copy, lines: BinaryIO | Iterable[bytes]) -> Cut | None:
    place = number = 0
    reason = "the log ends here, without the number of episodes"
    for number, text in enumerate(lines, 1):
        try:
            copy.put(_record(text))
        except TraceCorrupt as error:
            return Cut(number, place, str(error), copy.counts["episodes"], copy.counts["turns"])
        place += len(text)
    return None if copy.complete else Cut(number + 1, place, reason, copy.counts["episodes"], copy.counts["turns"])


def _record(text: bytes) -> Record:
    try:
        document = json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise TraceCorrupt("no JSON", got=str(error), expected="one object a line") from error
    if not isinstance(document, dict) or not isinstance(document.get("table"), str):
        raise TraceCorrupt("no record", got=f"{document!r:.60}", expected='{"table": name, ...}')
    table = document.pop("table")
    for column in BY_NAME[table].columns if table in BY_NAME else ():
        value = document.get(column.name)
        if column.form == "file" and isinstance(value, str):
            try:
                document[column.name] = base64.b64decode(value, validate=True)
            except ValueError as error:
                raise TraceCorrupt("no base64", where=f"{table}.{column.name}", got=str(error)) from error
    return record_from(table, document)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
