"""`agentgym-tok report RUN [RUN ...]`: runs as a page to look at, with a file for each table and figure."""

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.config import Config
from agentgym_tok.evaluate.report import write_report

__all__ = ["Options", "run"]


class Options(Config):
    """Write a report of evaluations and training runs: one HTML file, CSV and PNG of all that it shows, markdown.

    Several runs stand beside each other, and are compared with the first one in the tasks that both have.
    """

    runs: CliPositionalArg[tuple[str, ...]] = Field(min_length=1, description="folders of runs")
    out: str = Field(default="report", description="folder of the report; an earlier one there is replaced")
    traces: bool = Field(default=True, description="read the traces: times, episodes to read, the viewer beside it")
    pictures: bool = Field(default=True, description="write figures as PNG too; needs the extra `plot`")


def run(options: Options) -> int:
    """Write the report and say where it stands; return 0.

    Raises:
        ConfigError: The folder holds something else or cannot be written, or a run is named twice.
        MissingExtra: Pictures need matplotlib.
        DataMissing: A folder holds no run that a report can be made of.
        DataCorrupt: What it holds cannot be read.
        TraceError: A trace cannot be read.
    """
    page = write_report(options.runs, options.out, traces=options.traces, pictures=options.pictures)
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    return 0
