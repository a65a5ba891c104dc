"""ATIF documents of other tools as rollouts, where they hold the ids of every prompt and every answer.

Their texts say what was said, never what a model read: no ids are made of them, and no messages to replay.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.tokens import Context, Ids, Root, Span, as_ids, as_logprobs
from agentgym_tok.trace.exchange.atif_spans import reading
from agentgym_tok.trace.laws import answered, first_difference
from agentgym_tok.trace.records import Edge, Episode, EpisodeHead, RunMeta, Turn, sent_digest
from agentgym_tok.types import Completion

__all__ = ["foreign_episode"]


class _Read(Config, extra="ignore", strict=True):
    """Take the parts of a document that are read; validators of ATIF look at the rest."""


class _Metrics(_Read):
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Reference(_Read):
    trajectory_id: str | None = None


class _Result(_Read):
    content: str | list[dict[str, Any]] | None = None
    subagent_trajectory_ref: list[_Reference] | None = None


class _Observation(_Read):
    results: list[_Result]


class _Step(_Read):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]]
    timestamp: str | None = None
    model_name: str | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None

    @property
    def sampled(self) -> bool:
        """A model took it, in this very document."""
        return self.source == "agent" and not self.is_copied_context and self.llm_call_count != 0


class _Agent(_Read):
    name: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class _Document(_Read):
    schema_version: str = Field(pattern=r"^ATIF-v1\.\d+$")
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent
    steps: list[_Step] = Field(min_length=1)
    subagent_trajectories: list[dict[str, Any]] | None = None


def foreign_episode(
    document: Mapping[str, Any], meta: RunMeta | None, name: str, parent: str | None = None, turn: int | None = None
) -> Episode:
    """Return the rollout of a document that this library did not write.

    Args:
        document: The document.
        meta: Names the tokenizer that its ids belong to, which no ATIF document does.
        name: What messages call the document; also the id of an episode that has none.
        parent: Id of the episode that it is a subagent of.
        turn: Index of the turn there that opened it.

    Raises:
        TraceCorrupt: It is no ATIF document, or its numbers contradict each other.
        TraceError: A step lacks ids, or nobody says which tokenizer they belong to.
    """
    read = _validated(document, name)
    _check_ids(read, name)
    if meta is None:
        fix = "name it: --chat, or meta=RunMeta(fingerprint=..., vocab_size=...)"
        raise TraceError("nobody says which tokenizer the ids belong to", where=name, fix=fix)
    own = read.trajectory_id or read.session_id or name
    # Subagents' ids are unique inside their parent only.
    own = own if parent is None else f"{parent}/{own}"
    turns, opened = _turns(read, meta, own, name)
    children = tuple(
        foreign_episode(child, meta, f"{name}: subagent {place}", own, opened.get(str(child.get("trajectory_id"))))
        for place, child in enumerate(read.subagent_trajectories or ())
    )
    created = next((turn.started for turn in turns if turn.started), 0.0)
    head = EpisodeHead(own, "", source=read.agent.name, parent=parent, parent_turn=turn, created=created)
    return Episode(head, tuple(turns), "done", children=children)


def _validated(document: Mapping[str, Any], name: str) -> _Document:
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path, where = list(first["loc"]), name
        if path[:1] == ["steps"] and len(path) > 1:
            where, path = f"{name}: step {int(path[1]) + 1}", path[2:]
        raise TraceCorrupt(
            "no ATIF document",
            where=f"{where}: {'.'.join(map(str, path))}",
            got=f"{first['input']!r:.60}",
            expected=first["msg"],
        ) from None
    for place, step in enumerate(read.steps, 1):
        if step.step_id != place:
            where = f"{name}: step {place}"
            raise TraceCorrupt("steps are numbered from 1", where=where, got=step.step_id, expected=place)
    return read


def _check_ids(read: _Document, name: str) -> None:
    sampled = [step for step in read.steps if step.sampled]
    if not sampled:
        raise TraceError("no model took a step", where=name, expected="a step of an agent with its ids")
    for step in sampled:
        for field in ("prompt_token_ids", "completion_token_ids"):
            if not getattr(step.metrics, field, None):
                raise TraceError(
                    "text alone is no token trace",
                    where=f"{name}: step {step.step_id}: metrics.{field}",
                    got="no ids",
                    expected="the ids of every prompt and every completion",
                    fix="have the agent record them; nobody can make them of its texts",
                )


def _turns(read: _Document, meta: RunMeta, episode: str, name: str) -> tuple[list[Turn], dict[str, int]]:
    """Return the turns, and for each subagent that a step names the turn of that step."""
    root = Root(meta.fingerprint, meta.vocab_size, tuple(read.agent.tool_definitions or ()))
    turns: list[Turn] = []
    opened: dict[str, int] = {}
    anchor = ""
    for step in read.steps:
        if step.sampled:
            with reading(f"{name}: step {step.step_id}"):
                turns.append(_turn(step, root, turns, read.agent.model_name, episode, anchor))
        elif step.source == "user":
            anchor = _text(step.message)
        for result in step.observation.results if step.observation else ():
            anchor = _text(result.content) or anchor
            opened |= {str(ref.trajectory_id): len(turns) - 1 for ref in result.subagent_trajectory_ref or () if turns}
    return turns, opened


def _turn(step: _Step, root: Root, turns: list[Turn], model: str | None, episode: str, anchor: str) -> Turn:
    assert step.metrics is not None
    context, edge = _context(as_ids(step.metrics.prompt_token_ids or ()), root, turns)
    logprobs, when = step.metrics.logprobs, _unix(step.timestamp)
    # What is summed up of several calls was never drawn after one prompt.
    several = step.llm_call_count not in (None, 1)
    return Turn(
        episode=episode,
        index=len(turns),
        context=context,
        sent_digest=sent_digest(root, context.ids),
        completion=Completion(
            as_ids(step.metrics.completion_token_ids or (), vocab_size=root.vocab_size),
            None if logprobs is None else as_logprobs(logprobs, len(logprobs)),
            ids_exact=not several,
            logprobs="missing" if logprobs is None else "raw",
            engine=step.model_name or model or "",
            note=f"summed up of {step.llm_call_count} calls" if several else "",
        ),
        edge=edge,
        text=_text(step.message),
        started=when,
        ended=when,
        facts={"anchor": anchor, "step_id": step.step_id},
    )


def _context(ids_T: Ids, root: Root, turns: list[Turn]) -> tuple[Context, Edge]:
    """Return a prompt as the newest turn goes on to it whose ids it begins with, or as a new one."""
    for turn in reversed(turns):
        end = len(turn.context) + len(turn.completion.ids_T)
        # The answer first: it is short, and it differs where prompts fork.
        if first_difference(ids_T[len(turn.context) :], turn.completion.ids_T) is None:
            past = answered(turn)
            if first_difference(ids_T, past.ids) is None:
                context = past.extend(Span(ids_T[end:], "observation"))
                return context, Edge("continuation", turn.index, len(turns), declared=False)
    context = Context(root, Span(ids_T, "prompt"))
    if not turns:
        return context, Edge("fresh_prompt", None, 0, "the first turn of its document", declared=False)
    reason = "it begins with no earlier turn's ids"
    return context, Edge("unknown", None, len(turns), reason, declared=False)


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_texts(content))


def _texts(parts: list[dict[str, Any]]) -> Iterator[str]:
    yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


def _unix(timestamp: str | None) -> float:
    """Return Unix seconds; a time without a zone is UTC's, on every machine."""
    if timestamp is None:
        return 0.0
    time = dt.datetime.fromisoformat(timestamp)
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp()
