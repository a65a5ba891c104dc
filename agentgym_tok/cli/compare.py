"""`agentgym-tok compare A B`: what differs between runs, task by task, and whether that can be chance."""

import json
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.comparison_text import comparison_markdown, show_comparison
from agentgym_tok.config import Config
from agentgym_tok.evaluate import RunResults, compare
from agentgym_tok.evaluate.paper_table import paper_table
from agentgym_tok.evaluate.run_names import run_names

__all__ = ["Options", "run"]


class Options(Config):
    """Compare evaluations with the first one, by the same samples of the same tasks."""

    runs: CliPositionalArg[tuple[str, ...]] = Field(min_length=2, description="folders of runs, or results.json")
    common: bool = Field(default=False, description="compare what two runs have in common, where one has more")
    output: Literal["text", "markdown", "json"] = Field(default="text", description="what is printed")
    flips: int = Field(default=10, ge=0, description="most tasks of each list that text and markdown name")


def run(options: Options) -> int:
    """Print the comparisons; return 0.

    Raises:
        DataMissing: A run has no results.
        DataCorrupt: Results cannot be read.
        ConfigError: The runs cannot be compared.
    """
    names = [name for _, name in run_names(options.runs)]
    base, *others = [RunResults.read(name) for name in options.runs]
    found = [
        compare(base, other, common=options.common, names=(names[0], name))
        for name, other in zip(names[1:], others, strict=True)
    ]
    if options.output == "json":
        print(json.dumps([each.model_dump(mode="json") for each in found], indent=1))
    elif options.output == "markdown":
        print(paper_table(dict(zip(names, [base, *others], strict=True))))
        print("\n\n".join(comparison_markdown(each, options.flips) for each in found))
    else:
        for each in found:
            show_comparison(each, options.flips)
    return 0
