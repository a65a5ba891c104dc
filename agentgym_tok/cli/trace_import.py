"""`agentgym-tok trace import FILE --out RUN`: a run of what `trace export` wrote, or of another tool's ATIF files."""

import sys
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.trace import RunMeta, TraceStore
from agentgym_tok.trace.exchange.atif_import import import_atif
from agentgym_tok.trace.exchange.jsonl import import_jsonl
from agentgym_tok.trace.exchange.parquet import import_parquet

__all__ = ["Options", "run"]


class Options(Config):
    """Make a run of a log (a JSONL file) or of Parquet files, which the hash chain proves equal; or of ATIF files."""

    source: CliPositionalArg[str] = Field(
        description="the log; the folder of Parquet files; or ATIF: a .json file, or a folder of them"
    )
    out: str = Field(description="folder of the new run; nothing may stand there")
    partial: bool = Field(default=False, description="take what stands before the place where a log is cut or damaged")
    chat: str | None = Field(default=None, description="chat format that the ids in ATIF files of other tools are of")


def run(options: Options) -> int:
    """Import and say how much; return 0, also for the part of a log that `--partial` asked for.

    Raises:
        TraceError: The source cannot be read, or the run cannot be written.
        TraceCorrupt: The source is damaged; or it is a log that was cut, and the part was not asked for.
        ConfigError: A part of Parquet or ATIF files was asked for.
        MissingExtra: Parquet needs pyarrow.
    """
    source = Path(options.source)
    atif = source.suffix == ".json" or any(source.glob("*.json"))
    if atif or source.is_dir():
        if options.partial:
            raise ConfigError("only a log has a readable part", where="--partial", got=options.source)
        if atif:
            import_atif(source, options.out, meta=_meta(options.chat))
        else:
            import_parquet(source, options.out)
    else:
        cut = import_jsonl(options.source, options.out, partial=options.partial)
        if cut is not None:
            sys.stderr.write(f"warning: the log is not whole, and what follows is missing; {cut}\n")
    with TraceStore(options.out, mode="r") as store:
        print(f"{options.out}: {len(store.heads())} episodes")
    return 0


def _meta(name: str | None) -> RunMeta | None:
    if name is None:
        return None
    chat = chat_format(name)
    return RunMeta.of(chat)
