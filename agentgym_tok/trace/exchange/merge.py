"""Several runs as one."""

from collections.abc import Sequence
from pathlib import Path

from agentgym_tok.trace.exchange.copying import new_run
from agentgym_tok.trace.exchange.rollouts import opened
from agentgym_tok.trace.exchange.stream import stream

__all__ = ["merge"]


def merge(runs: Sequence[str | Path], out: str | Path) -> dict[str, int]:
    """Copy runs into a new one, in one shard; every record is checked on the way.

    Spans, settings, images and equal episodes that several runs hold stand there once. The documents of all runs stay:
    what the second one is made with is `run:2`.

    Args:
        runs: Folders of runs of one chat format.
        out: Folder of the new run; nothing may stand there.

    Returns:
        Number of records by table.

    Raises:
        TraceError: There is no trace, or the new run cannot be written.
        FingerprintMismatch: The runs were made with different chat formats.
        TraceCorrupt: Different episodes have one id, a record is damaged, or one run holds what was taken out of
            another.
    """
    with opened(runs) as readers, new_run(out) as copy:
        for record in stream(readers):
            copy.put(record)
        return dict(copy.counts)
