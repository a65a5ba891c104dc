"""Edges of new conversations: prompts of subagents, summaries, fresh prompts and side calls."""

from agentgym_tok.trace.edges.likeness import align, quotes, squash
from agentgym_tok.trace.edges.lineage import SYSTEM_ROLES, Known, count_answers
from agentgym_tok.trace.edges.search import FoundEdge, Search

__all__ = ["opening"]


def opening(search: Search) -> FoundEdge:
    """Return the edge of a conversation that holds no answer of the session.

    Args:
        search: For a context that begins with no turn's ids.
    """
    found = [each for each in (_call(search), _summary(search), _side_call(search), _like_earlier(search)) if each]
    kinds = {each.edge.kind for each in found}
    if len(kinds) > 1:
        return search.unsure([edge for each in found for edge in each.alternatives or (each.edge,)])
    return found[0] if found else FoundEdge(search.edge("unknown", None, _no_evidence(search)))


def _call(search: Search) -> FoundEdge | None:
    """A subagent: its prompt stands among the arguments of a call."""
    callers = [caller for caller, _ in search.callers()]
    return search.from_one("subagent_call", callers, "its prompt stands in a call") if callers else None


def _summary(search: Search) -> FoundEdge | None:
    """A compaction that kept no answer: the conversation is shorter, and a new message quotes an answer."""
    longer = (step for step in search.lineage.steps() if step.answers and step.length > len(search.body))
    shrunk = next((step for step in longer if search.same_system(step)), None)
    if shrunk is None:
        return None
    kept = align(shrunk.body(), search.body).before
    quoted = search.quoted_by(search.body)
    also = "".join(f", and {change}" for change in search.changed(shrunk))
    reason = f"an earlier answer stands for {shrunk.length - kept} messages from {search.name(kept)} on{also}"
    return search.from_one("compaction", quoted, reason) if quoted else None


def _like_earlier(search: Search) -> FoundEdge | None:
    """One more prompt under the system message and tools of one that nothing followed, of the same kind as that."""
    if count_answers(search.body):
        return None
    alike = (step for step in search.lineage.steps() if not step.answers and not search.changed(step))
    earlier = next(alike, None)
    if earlier is None or earlier.followed or earlier.turn.edge.kind not in ("fresh_prompt", "auxiliary"):
        return None
    reason = f"a prompt like that of turn {earlier.index}, which nothing followed"
    return FoundEdge(search.edge(earlier.turn.edge.kind, earlier, reason))


def _side_call(search: Search) -> FoundEdge | None:
    """A side call: it has no tools where others have, and quotes one of their messages or answers."""
    if search.context.root.tools or count_answers(search.body):
        return None
    texts = [squash(message.content) for message in (*search.system, *search.body)]
    quoted: set[Known] = set()
    source: Known | None = None
    for step in reversed(list(search.lineage.steps())):
        if step.turn.context.root.tools and (step.parent in quoted or _is_quoted(step, texts)):
            quoted.add(step)
            source = step
    if source is None:
        return None
    return FoundEdge(
        search.edge("auxiliary", source, f"it has no tools and quotes the conversation of turn {source.index}")
    )


def _is_quoted(step: Known, texts: list[str]) -> bool:
    said = [message.content for message in step.news if message.role not in SYSTEM_ROLES]
    return any(quotes(text, squash(words)) for words in (*said, step.said.content) for text in texts)


def _no_evidence(search: Search) -> str:
    if not search.body:
        return "nobody says which messages it holds"
    if count_answers(search.body):
        return "its answers are none of this session"
    same = (step for step in search.lineage.steps() if not step.answers and step.length == len(search.body))
    for step in same:
        if not align(step.body(), search.body).gone:
            return (
                f"the prompt of turn {step.index}, but {' and '.join(search.changed(step))}: a swap, or another agent"
            )
    return "a new conversation that nothing earlier explains"
