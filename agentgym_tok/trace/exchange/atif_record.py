"""What ATIF has no field for: a rollout's records, as documents under one key of `extra`, and back.

Columns are named and shaped as in docs/trace.schema.json, except that JSON stands as what it says.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

import numpy as np

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace.encoding import (
    failure_from,
    failure_json,
    head_cells,
    head_from,
    settings_json,
    texts_json,
    turn_cells,
    turn_from,
)
from agentgym_tok.trace.evidence import evidence_cells
from agentgym_tok.trace.exchange.atif_spans import KEY, Spans, carried, reading, span_from
from agentgym_tok.trace.exchange.cells import Record, record_from, shown
from agentgym_tok.trace.records import Episode, Status, Turn
from agentgym_tok.trace.schema import BY_NAME, HEAD, TURN
from agentgym_tok.types import FinishReason, LogprobKind

__all__ = ["VERSION", "end_record", "episode_from", "turn_record"]

VERSION: Final = 1

_NOTHING_SAID: Final = dict.fromkeys((column.name for column in BY_NAME["evidence"].columns if column.nullable), None)
_SEALS: Final = {"evidence": None, "texts": ""}
"""Columns of turns that speak of other records; the records themselves stand in their place."""
_OF_A_SHARD: Final[Mapping[str, Mapping[str, Any]]] = {
    "episodes": {"id": 0, "tip": ""},
    "turns": {"id": 0, "episode": 0, "completion": 0, "settings": 0, "hash": "", **_SEALS},
    "evidence": {"turn": 0},
}
"""What a shard has in its records besides."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "finish_reason": get_args(FinishReason),
    "logprob_kind": get_args(LogprobKind),
    "status": get_args(Status),
}


def _cells(table: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the cells of a record, each of its column's type."""
    ours = [column for column in BY_NAME[table].columns if column.name not in _OF_A_SHARD[table]]
    values = {column.name: document[column.name] for column in ours}
    for name in _json_columns(table):
        values[name] = None if values[name] is None else json.dumps(values[name])
    for name in _WORDS.keys() & values.keys():
        if values[name] not in _WORDS[name]:
            raise ValueError(f"{name} is {values[name]!r:.60}, none of {', '.join(_WORDS[name])}")
    return record_from(table, {**values, **_OF_A_SHARD[table]}).cells


def _document(table: str, cells: Mapping[str, Any], length: int = 0) -> dict[str, Any]:
    document = shown(Record(table, {**cells, **dict.fromkeys(_OF_A_SHARD[table])}, length))
    for name in _json_columns(table):
        document[name] = None if document[name] is None else json.loads(document[name])
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in document.items()
        if name not in _OF_A_SHARD[table]
    }


def _json_columns(table: str) -> list[str]:
    return [column.name for column in BY_NAME[table].columns if column.form == "json"]


# ---- turns


def turn_record(turn: Turn, place: int, context: int) -> dict[str, Any]:
    """Return all of a turn but the ids and log-probabilities of its answer.

    Args:
        turn: The turn.
        place: Among the episode's attempts.
        context: Place of its context's last span.

    Raises:
        TraceError: It holds something that JSON has no word for.
    """
    completion = turn.completion
    cells = dict(zip(TURN, turn_cells(turn, None, b""), strict=True))
    record = _document("turns", {**cells, "seq": place, "context": context})
    record["origin"] = completion.origin
    record["settings"] = json.loads(settings_json(completion.engine, completion.sampling))
    record["texts"] = json.loads(texts_json(turn))
    if completion.experts_T_L_K is not None or completion.support is not None:
        said = dict(zip(_NOTHING_SAID, evidence_cells(completion), strict=True))
        record["evidence"] = _document("evidence", said, len(completion.ids_T))
    if turn.redacted:
        record["redacted"] = sorted(turn.redacted)
    return record


def _turn(record: Mapping[str, Any], episode: str, context: Context, answer: Span) -> Turn:
    context.extend(answer)  # which refuses ids outside the vocabulary
    cells = {
        **_cells("turns", record),
        **(_cells("evidence", record["evidence"]) if record.get("evidence") else _NOTHING_SAID),
        "settings_body": json.dumps(record["settings"]),
        "texts_body": json.dumps(record["texts"]),
    }
    return turn_from(cells, episode, context, answer, frozenset(record.get("redacted", ())))


# ---- episodes


def end_record(episode: Episode) -> dict[str, Any]:
    """Return an episode's head and end."""
    head = dict(zip(HEAD, head_cells(episode.head), strict=True))
    success = None if episode.success is None else int(episode.success)
    end = {"status": episode.status, "success": success, "failure": failure_json(episode.failure)}
    return _document("episodes", {**head, **end, "turns": len(episode.turns)})


def episode_from(record: Mapping[str, Any], steps: Mapping[int, tuple[Mapping[str, Any], Span]], name: str) -> Episode:
    """Return an episode without its children.

    Args:
        record: What the document's `extra` carries.
        steps: For each step that is a turn: what its `extra` carries, and its answer.
        name: What messages call the document.

    Raises:
        TraceCorrupt: It contradicts itself.
    """
    with reading(name):
        cells = _cells("episodes", carried(record["episode"]))
        head, failure = head_from(cells), failure_from(cells["failure"])
        attempts = list(record["attempts"])
    spans = Spans(record, {step: answer for step, (_, answer) in steps.items()}, name)
    found = [(f"{name}: step {step}", turn, answer) for step, (turn, answer) in steps.items()]
    for place, attempt in enumerate(attempts):
        where = f"{name}: {KEY}.attempts[{place}]"
        with reading(where):
            own = carried(attempt)
            found.append((where, own, span_from(own)))
    turns: dict[int, Turn] = {}
    for where, document, answer in found:
        with reading(where):
            turn = _turn(document, head.id, spans.context(document["context"]), answer)
            if turns.setdefault(document["seq"], turn) is not turn:
                raise ValueError(f"another attempt has its place, {document['seq']}")
    if sorted(turns) != list(range(cells["turns"])):
        got, expected = f"their places are {sorted(turns)}", f"all of {cells['turns']}"
        raise TraceCorrupt("attempts are missing", where=name, got=got, expected=expected)
    return Episode(
        head=head,
        turns=tuple(turns[place] for place in range(len(turns))),
        status=cells["status"],
        success=None if cells["success"] is None else bool(cells["success"]),
        failure=failure,
    )
