"""`agentgym-tok compare A B`: what differs between runs, task by task, and whether that can be chance."""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.comparison_text import comparison_markdown, show_comparison
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import RunResults, compare
from agentgym_tok.evaluate.paper_table import paper_table

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
    names = _names(options.runs)
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


def _names(runs: tuple[str, ...]) -> list[str]:
    """Return the shortest ends of the paths that tell the runs apart."""
    paths = [path.parent if path.is_file() else path for path in map(Path, runs)]
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ConfigError("a run is compared with itself", where="compare", got=", ".join(runs))
    size = next(
        size for size in range(1, max(map(len, parts)) + 1) if len({one[-size:] for one in parts}) == len(parts)
    )
    return ["/".join(one[-size:]) for one in parts]
