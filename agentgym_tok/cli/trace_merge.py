"""`agentgym-tok trace merge RUN RUN... --out NEW`: several runs, or all shards of one, as one shard."""

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.config import Config
from agentgym_tok.trace.exchange.merge import merge

__all__ = ["Options", "run"]


class Options(Config):
    """Copy runs of one chat format into a new one.

    Equal episodes stand there once; different ones of one id are refused.
    """

    runs: CliPositionalArg[tuple[str, ...]] = Field(min_length=1, description="folders of the runs")
    out: str = Field(description="folder of the new run; nothing may stand there")


def run(options: Options) -> int:
    """Merge and say how much; return 0.

    Raises:
        TraceError: There is no trace, or the new run cannot be written.
        FingerprintMismatch: The runs were made with different chat formats.
        TraceCorrupt: Different episodes have one id, or a record is damaged.
    """
    counts = merge(options.runs, options.out)
    print(f"{options.out}: {counts['episodes']} episodes, {counts['turns']} turns")
    return 0
