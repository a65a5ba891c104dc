"""Edges found out: how a context came from earlier turns, by its ids and its messages, where no harness says so.

Ids come first: what begins with a turn's context and answer goes on from it, whatever else looks otherwise. Then the
messages: the last answer of the session that a conversation holds says which turn it comes from, and what was changed
before it says how. A conversation without any is a new one. Nothing is guessed: where evidence is missing, or several
kinds explain a context equally well, its edge is `unknown` and says why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentgym_tok.errors import TraceError
from agentgym_tok.tokens import Context
from agentgym_tok.trace.edges.likeness import quotes, squash
from agentgym_tok.trace.edges.lineage import Known, Lineage, count_answers
from agentgym_tok.trace.edges.openings import opening
from agentgym_tok.trace.edges.rewrites import rewrite
from agentgym_tok.trace.edges.search import FoundEdge, Search, has_same_ids, latest_used
from agentgym_tok.trace.records import Edge
from agentgym_tok.types import Message

__all__ = ["FoundEdge", "classify"]


def classify(
    lineage: Lineage, context: Context, conversation: Sequence[Message], *, declared: Edge | None = None
) -> FoundEdge:
    """Find out how a context came from the turns of a session.

    Args:
        lineage: The session's turns so far.
        context: What the engine is about to receive, or received.
        conversation: All messages of the request, earlier ones too.
        declared: What the harness says. It wins: only its ids are checked, and its place is filled in.

    Returns:
        The edge. A resample of the last turn has that turn's own index as source and target.

    Raises:
        TraceError: The ids contradict a declared continuation or resample, or a declared edge leads elsewhere.
        FingerprintMismatch: The context belongs to another chat format than the session.
    """
    lineage.check(context)
    search = Search(lineage, context, conversation)
    if declared is not None:
        return _checked(search, declared)
    if lineage.last is None:
        return FoundEdge(search.edge("fresh_prompt", None, "the first turn of its session"))
    repeated = lineage.repeated(context)
    if repeated:
        return _repeats(search, repeated)
    sources = lineage.continued(context, conversation)
    if not sources:
        return rewrite(search) or opening(search)
    # What stands behind a turn is new, or it holds later answers that were rendered again: a rewrite of those turns.
    if count_answers(search.body) > sources[0].answers + 1:
        found = rewrite(search)
        if found is None:
            reason = f"behind the ids of turn {sources[-1].index} stand answers of no turn"
            return FoundEdge(search.edge("unknown", sources[-1], reason))
        if found.edge.source is None or found.edge.kind != "rerender" or found.edge.place is not None:
            return found
    return _goes_on(search, sources, conversation)


def _checked(search: Search, declared: Edge) -> FoundEdge:
    """Fill in the place of a declared edge; a false continuation would break law 1, so it is refused, not corrected."""
    lineage, context, last = search.lineage, search.context, search.lineage.last
    where = f"declared {declared.kind}, {declared.source} -> {declared.target}"
    if last is not None and declared.source == declared.target == last.index:
        if last.turn.context.digest != context.digest:
            fix = "declare a new turn"
            raise TraceError("another attempt repeats the tools and ids of the last one", where=where, fix=fix)
        return FoundEdge(declared, last.turn.attempt + 1)
    source = None if declared.source is None else lineage.step(declared.source)
    if declared.target != len(lineage) or (declared.source is not None and source is None):
        raise TraceError("the declared edge leads elsewhere", where=where, expected=f"a turn below -> {len(lineage)}")
    if source is None:
        return FoundEdge(declared)
    place = source.place(context)
    if declared.kind != "continuation":
        return FoundEdge(replace(declared, place=place))
    if place is not None or len(context) < source.end:
        got = f"they leave it at token {len(context) if place is None else place}"
        fix = "go on with the ids as they were, or declare a rewrite"
        raise TraceError("the ids do not go on from that turn", where=where, got=got, fix=fix)
    return FoundEdge(declared)


def _goes_on(search: Search, sources: Sequence[Known], conversation: Sequence[Message]) -> FoundEdge:
    """Return the edge of a context that begins with the ids of several attempts, which have the same ones."""
    # An edge from a turn means its used attempt; where several attempts have the same ids, they make no difference.
    steps = [step for step in dict.fromkeys(map(search.lineage.step_of, sources)) if has_same_ids(step, sources[0])]
    if not steps:
        source = sources[-1]
        reason = f"goes on from attempt {source.turn.attempt} of turn {source.index}, which is not the used one"
        return FoundEdge(search.edge("unknown", search.lineage.step_of(source), reason))
    source = latest_used(steps)
    others = [step for step in steps if step is not source]
    reasons = [f"turn {other.index} has the same ids" for other in others]
    reasons += _remarks(search, conversation[len(source.system) + source.length + 1 :], source)
    alternatives = tuple(search.edge("continuation", other) for other in others)
    return FoundEdge(search.edge("continuation", source, ", ".join(reasons)), 0, alternatives)


def _remarks(search: Search, news: Sequence[Message], source: Known) -> Iterator[str]:
    """Say what a continuation brings along, for people."""
    if not search.same_tools(source):
        yield "the tools are others, and no id shows it"
    texts = [squash(message.content) for message in news if message.role == "tool"]
    if texts:
        for end in search.lineage.ends_of_subagents():
            if any(quotes(text, squash(end.said.content)) for text in texts):
                yield f"the answer of turn {end.index} returns"


def _repeats(search: Search, repeated: Sequence[Known]) -> FoundEdge:
    """Return the edge of a context that was asked before.

    The last turn's has another attempt; an earlier turn's is a new turn, since attempts follow each other in a trace.
    """
    earlier, last = repeated[-1], search.lineage.last
    found = FoundEdge(search.edge("retry", earlier, "the same tools and ids"))
    if last is not None and earlier.index == last.index:
        found = FoundEdge(replace(found.edge, target=last.index), last.turn.attempt + 1)
    # Two subagents with one prompt, or a world that says the same twice, ask the same without repeating anything.
    opened = earlier.turn.edge
    callers = search.callers() if opened.kind == "subagent_call" else []
    if sum(calls for _, calls in callers) > len({known.index for known in repeated}):
        reason = f"turn {callers[-1][0].index} calls for this prompt more often than it was asked"
        return search.unsure([found.edge, search.edge("subagent_call", callers[-1][0], reason)])
    if opened.kind == "fresh_prompt" and opened.source is not None:
        reason = f"a prompt like that of turn {earlier.index}"
        return search.unsure([found.edge, search.edge("fresh_prompt", earlier, reason)])
    return found
