"""`agentgym-tok trace export RUN --format FORMAT --out PLACE`: a run in a format that others read."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.worlds import own_format
from agentgym_tok.config import Config
from agentgym_tok.trace import Merge, Objective, Weighting
from agentgym_tok.trace.exchange.atif import export_atif
from agentgym_tok.trace.exchange.jsonl import export_jsonl
from agentgym_tok.trace.exchange.parquet import export_parquet
from agentgym_tok.trace.exchange.rows_parquet import export_rows

__all__ = ["Options", "run"]


class Options(Config):
    """Write a run in another format. `trace import` brings jsonl, parquet and atif back, equal."""

    run: CliPositionalArg[str] = Field(description="folder of the run")
    out: str = Field(description="the file, or the folder of parquet and atif; nothing may stand there")
    format: Literal["jsonl", "parquet", "rows", "atif"] = Field(
        default="jsonl",
        description="jsonl: a log of records; parquet: a file for each table; rows: training rows as one Parquet file;"
        " atif: a file for each rollout, that other tools for agents read",
    )
    objective: Objective = Field(default="rl", description="of rows: rl or sft")
    merge: Merge = Field(default="prefix", description="of rows: prefix or turn")
    weighting: Weighting = Field(default="rollout", description="of rows: rollout, row or token")
    prompt_ids: bool = Field(
        default=True, description="of atif: write every prompt out in full, which others need to train on tokens"
    )


def run(options: Options) -> int:
    """Write and say how much; return 0.

    Raises:
        TraceError: There is no trace, or the place cannot be written.
        TraceCorrupt: A record is damaged or missing.
        MissingExtra: Parquet needs pyarrow.
    """
    print(f"{options.out}: {_FORMATS[options.format](options)}")
    return 0


def _jsonl(options: Options) -> str:
    return f"{export_jsonl(options.run, options.out)} records"


def _parquet(options: Options) -> str:
    return f"{sum(export_parquet(options.run, options.out).values())} records"


def _rows(options: Options) -> str:
    count = export_rows(
        options.run, options.out, objective=options.objective, merge=options.merge, weighting=options.weighting
    )
    return f"{count} rows"


def _atif(options: Options) -> str:
    chat = own_format(options.run)
    return f"{export_atif(options.run, options.out, chat=chat, prompt_ids=options.prompt_ids)} rollouts"


_FORMATS: Final[Mapping[str, Callable[[Options], str]]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "rows": _rows,
    "atif": _atif,
}
