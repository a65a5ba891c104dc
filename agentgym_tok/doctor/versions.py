"""Does every id say which weights drew it?"""

from agentgym_tok.doctor.finding import Finding, failed, ok, skipped
from agentgym_tok.doctor.patient import Patient

__all__ = ["check_versions"]


def check_versions(patient: Patient) -> Finding:
    """Look at the weight versions of all turns so far."""
    turns = [turn for turn in patient.turns if len(turn.ids_T)]
    named = [turn for turn in turns if turn.weight_versions]
    if not named:
        return skipped("the engine names no weight versions; fine as long as its weights stay the same")
    for turn in turns:
        runs = turn.weight_versions
        ends = [0, *(end for _, _, end in runs)]
        if [start for _, start, _ in runs] != ends[:-1] or ends[-1] != len(turn.ids_T):
            shown = ", ".join(f"{version!r} from {start} to {end}" for version, start, end in runs) or "none"
            what = f"the versions of a turn of {len(turn.ids_T)} ids leave some out: {shown}"
            return failed(what, "each id must be in one run of Completion.weight_versions, or all turns in none")
    versions = sorted({version for turn in named for version, _, _ in turn.weight_versions})
    return ok(f"all ids of {len(named)} turns name their weights: {', '.join(versions[:4])}", versions=len(versions))
