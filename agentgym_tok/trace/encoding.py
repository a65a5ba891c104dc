"""Records to cells of tables and back; the JSON shapes stand in docs/design/trace.md."""

import functools
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

from agentgym_tok.errors import TraceError
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace.chain import Value, seal
from agentgym_tok.trace.codec import unpack_ids, unpack_logprobs
from agentgym_tok.trace.evidence import evidence_from
from agentgym_tok.trace.records import Edge, EpisodeHead, Failure, Redacted, Status, Turn
from agentgym_tok.trace.schema import HEAD
from agentgym_tok.types import Completion, Message, Sampling, ToolCall

__all__ = [
    "end_seal",
    "failure_from",
    "failure_json",
    "head_cells",
    "head_from",
    "root_from",
    "settings_json",
    "span_from",
    "texts_json",
    "to_json",
    "tools_json",
    "turn_cells",
    "turn_from",
]


class Cells(Protocol):
    """One record of a table, by column; `sqlite3.Row` is one."""

    def __getitem__(self, column: str, /) -> Any:
        """Return a cell."""
        ...


def to_json(document: object, *, where: str) -> str:
    """Return compact JSON that any reader takes, lone surrogates escaped.

    Raises:
        TraceError: It holds something that JSON has no word for.
    """
    try:
        text = _JSON.encode(document)
    except (TypeError, ValueError, RecursionError) as error:
        fix = "use text, numbers, booleans, None, lists and string-keyed dicts"
        raise TraceError("not JSON", where=where, got=str(error), expected="plain values", fix=fix) from error
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ESCAPED_JSON.encode(document)
    return text


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} {value!r:.60}")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
_ESCAPED_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_plain)


# ---- heads, roots, settings


def head_cells(head: EpisodeHead) -> tuple[Value, ...]:
    """Return a head in the order of `HEAD`."""
    return (
        head.id,
        head.task,
        head.source,
        head.group_id,
        int(head.replica),
        int(head.seed),
        head.parent,
        head.parent_turn,
        head.role,
        float(head.created) + 0.0,  # negative zero would not survive the file
    )


def head_from(cells: Cells) -> EpisodeHead:
    """Read a head from a record of `episodes`."""
    named = {name: cells[name] for name in HEAD}
    return EpisodeHead(id=named.pop("name"), **named)


def tools_json(root: Root) -> str:
    """Return the tools of a root as JSON."""
    return to_json(root.tools, where="tools of a context")


def root_from(cells: Cells) -> Root:
    """Read a root from a record of `roots`."""
    return Root(cells["fingerprint"], cells["vocab_size"], tuple(json.loads(cells["tools"])))


def settings_json(engine: str, sampling: Sampling | None) -> str:
    """Return an engine and its sampling parameters as JSON."""
    parameters = None if sampling is None else sampling.model_dump()
    return to_json({"engine": engine, "sampling": parameters}, where="sampling")


@functools.lru_cache(maxsize=1024)
def _settings_from(body: str) -> tuple[str, Sampling | None]:
    document = json.loads(body)
    sampling = document["sampling"]
    return document["engine"], None if sampling is None else Sampling.model_validate(sampling)


def failure_json(failure: Failure | None) -> str | None:
    """Return a failure as JSON."""
    return None if failure is None else to_json(_failure(failure), where="failure")


def _failure(failure: Failure | None) -> dict[str, str] | None:
    if failure is None:
        return None
    return {"boundary": failure.boundary, "kind": failure.kind, "message": failure.message}


def failure_from(body: str | None) -> Failure | None:
    """Read a failure from its JSON."""
    return None if body is None else Failure(**json.loads(body))


def end_seal(tip: bytes, status: Status, success: Value, failure: str | None) -> bytes:
    """Seal the end of an episode after its last turn's hash."""
    return seal(tip, (status, success, failure))


# ---- spans and turns


def span_from(row: Any) -> Span:
    """Read a span from a record of `nodes`."""
    length = row["length"]
    ids_T = unpack_ids(row["ids"], length)
    logprobs_T = None if row["logprobs"] is None else unpack_logprobs(row["logprobs"], length)
    return Span(ids_T, row["origin"], logprobs_T, row["replaced"])


def texts_json(turn: Turn) -> str:
    """Return what is free text in a turn as JSON."""
    document = {
        "messages": [_message(message) for message in turn.messages],
        "text": turn.text,
        "action_text": turn.action_text,
        "reason": turn.edge.reason,
        "failure": _failure(turn.failure),
        "facts": turn.facts,
    }
    if turn.completion.note:
        document["note"] = turn.completion.note
    return to_json(document, where=f"texts of turn {turn.index} of {turn.episode}")


def turn_cells(turn: Turn, evidence: bytes | None, texts: bytes) -> tuple[Value, ...]:
    """Return a turn in the order of `TURN`.

    Args:
        turn: The turn.
        evidence: Short seal of what the engine said beside the ids.
        texts: Short seal of its texts.
    """
    completion, edge, where = turn.completion, turn.edge, f"turn {turn.index} of {turn.episode}"
    return (
        int(turn.index),
        int(turn.attempt),
        int(turn.used),
        bytes.fromhex(turn.sent_digest),
        completion.finish_reason,
        int(completion.ids_exact),
        completion.logprobs,
        to_json(completion.weight_versions, where=f"{where}: weight versions"),
        edge.kind,
        edge.source,
        int(edge.declared),
        edge.place,
        _flag(turn.format_ok),
        _flag(turn.valid_action),
        turn.reward,
        int(turn.terminated),
        int(turn.truncated),
        turn.truncation,
        int(turn.seed),
        float(turn.started),
        float(turn.ended),
        evidence,
        texts,
    )


def turn_from(cells: Cells, episode: str, context: Context, answer: Span, redacted: frozenset[Redacted]) -> Turn:
    """Read a turn.

    Args:
        cells: Its record of `turns`, with its evidence, and the bodies of its settings and texts.
        episode: Id of the episode.
        context: What the engine received.
        answer: The completion's span.
        redacted: What was taken out since it was written.
    """
    engine, sampling = _settings_from(cells["settings_body"])
    people = json.loads(cells["texts_body"])
    experts_T_L_K, support = evidence_from(cells, len(answer))
    completion = Completion(
        ids_T=answer.ids_T,
        logprobs_T=answer.logprobs_T,
        finish_reason=cells["finish_reason"],
        weight_versions=tuple((version, start, end) for version, start, end in json.loads(cells["versions"])),
        ids_exact=bool(cells["ids_exact"]),
        logprobs=cells["logprob_kind"],
        engine=engine,
        sampling=sampling,
        origin=answer.origin,
        experts_T_L_K=experts_T_L_K,
        support=support,
        note=people.get("note", ""),
    )
    return Turn(
        episode=episode,
        index=cells["turn"],
        context=context,
        sent_digest=cells["sent"].hex(),
        completion=completion,
        edge=Edge(
            cells["edge"],
            cells["edge_source"],
            cells["turn"],
            people["reason"],
            bool(cells["edge_declared"]),
            cells["edge_place"],
        ),
        messages=tuple(_message_from(message) for message in people["messages"]),
        text=people["text"],
        action_text=people["action_text"],
        format_ok=_flag_from(cells["format_ok"]),
        valid_action=_flag_from(cells["valid_action"]),
        reward=cells["reward"],
        terminated=bool(cells["terminated"]),
        truncated=bool(cells["truncated"]),
        truncation=cells["truncation"],
        attempt=cells["attempt"],
        used=bool(cells["used"]),
        seed=cells["seed"],
        started=cells["started"],
        ended=cells["ended"],
        failure=None if people["failure"] is None else Failure(**people["failure"]),
        facts=people["facts"],
        redacted=redacted,
    )


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _flag_from(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _message(message: Message) -> dict[str, Any]:
    document = _spoken(message)
    if message.tool_calls:
        document["tool_calls"] = [_spoken(call) for call in message.tool_calls]
    return document


def _spoken(record: Message | ToolCall) -> dict[str, Any]:
    """Return all fields that differ from their defaults, so that no future field is lost."""
    cells = {part.name: getattr(record, part.name) for part in fields(record)}
    return {part.name: cells[part.name] for part in fields(record) if cells[part.name] != part.default}


def _message_from(document: Mapping[str, Any]) -> Message:
    calls = tuple(ToolCall(**_tupled(call, "tokens")) for call in document.get("tool_calls", ()))
    ranges = tuple((start, end) for start, end in document.get("untrusted", ()))
    images = tuple(document.get("images", ()))
    return Message(**{**document, "tool_calls": calls, "untrusted": ranges, "images": images})


def _tupled(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**document, name: tuple(document[name])} if name in document else dict(document)
