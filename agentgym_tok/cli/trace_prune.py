"""`agentgym-tok trace prune RUN --out NEW`: a run without some of its rollouts."""

import json

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.trace.exchange.prune import Selection, prune, pruned

__all__ = ["Options", "pruned_lines", "run"]


class Options(Selection):
    """Copy the rollouts that meet all conditions, each with its subagents.

    What was left out is counted, and recorded in the new run.
    """

    run: CliPositionalArg[str] = Field(description="folder of the run")
    out: str = Field(description="folder of the new run; nothing may stand there")


def run(options: Options) -> int:
    """Prune and say what was left out; return 0.

    Raises:
        TraceError: There is no trace, nothing would be kept, or the new run cannot be written.
        UnknownName: An episode that is asked for is not there.
        TraceCorrupt: A record is damaged or missing.
    """
    selection = Selection(**{name: getattr(options, name) for name in Selection.model_fields})
    kept = prune(options.run, options.out, selection)["kept"]
    print(f"{options.out}: {kept['rollouts']} rollouts, {kept['episodes']} episodes, {kept['turns']} turns")
    print("\n".join(pruned_lines(options.out)))
    return 0


def pruned_lines(run: str) -> list[str]:
    """Return a line for each pruning that a run has gone through."""
    lines = []
    for document in pruned(run):
        left, rule = document["left_out"], json.dumps(document["rule"], ensure_ascii=False)
        counts = f"{left['rollouts']} rollouts, {left['episodes']} episodes, {left['turns']} turns"
        lines.append(f"pruned: {counts} with {left['accounting'][0]['sampled']} sampled ids left out; kept was {rule}")
    return lines
