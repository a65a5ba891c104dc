"""Episodes as the viewer's page holds them: chunks that are unpacked one by one, each span in one of them."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace.chain import node_digest, root_digest
from agentgym_tok.trace.codec import ids_bytes, logprobs_bytes
from agentgym_tok.trace.encoding import to_json, tools_json
from agentgym_tok.trace.records import Episode, Turn
from agentgym_tok.trace.rows import mask_reason
from agentgym_tok.types import Completion, Message

__all__ = ["ADVANTAGE_EPSILON", "Chunks", "DriftMark", "advantages", "packed"]

ADVANTAGE_EPSILON: Final = 1e-6
"""Added to a group's standard deviation, as verl does."""

_MOST_MARKED_IDS = 32


@dataclass(frozen=True, slots=True)
class DriftMark:
    """Say where a text pipeline would have trained on other ids; a `Drift` without the audit's room around it.

    Args:
        kind: Its class.
        turn: Index of the turn that the place belongs to.
        position: The first differing id, counted from the start of that turn's context.
        count: Ids that differ there.
        exact: What was sent or sampled there.
        text: What the text pipeline has instead.
        detail: For people.
    """

    kind: str
    turn: int
    position: int
    count: int
    exact: Sequence[int] = ()
    text: Sequence[int] = ()
    detail: str = ""


def packed(document: object, ids: Sequence[bytes] = (), logprobs: Sequence[bytes] = ()) -> str:
    """Pack a document and arrays as text that no HTML parser sees anything in.

    Args:
        document: What JSON can say.
        ids: Arrays as little-endian int32.
        logprobs: Arrays as little-endian float32.

    Returns:
        base64 of a zlib stream of: the JSON's length as uint32; the JSON in ASCII, up to a multiple of 4 by spaces; all
        ids; all log-probabilities.
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 4)
    return base64.b64encode(zlib.compress(b"".join([len(text).to_bytes(4, "little"), text, *ids, *logprobs]))).decode()


def advantages(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the advantage of every episode that has one: GRPO's, with the unbiased standard deviation.

    Subagents inherit the advantage of their root. A group of one has none, and neither has who still runs.

    Args:
        records: Of `Chunks.add`, of all episodes.
    """
    known = {record["id"]: record for record in records}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in known.values():
        if record["parent"] is None and record["status"] != "running":
            groups.setdefault(record["group"], []).append(record)
    found: dict[str, float] = {}
    for members in groups.values():
        if len(members) < 2:
            continue
        returns_G = np.array([member["return"] for member in members], np.float64)
        advantage_G = (returns_G - returns_G.mean()) / (returns_G.std(ddof=1) + ADVANTAGE_EPSILON)
        found.update(zip((member["id"] for member in members), advantage_G.tolist(), strict=True))
    for name in known:
        root, above = name, {name}
        while (parent := known[root]["parent"]) in known and parent not in above:
            root = parent
            above.add(root)
        if root in found:
            found[name] = found[root]
    return found


class Chunks:
    """Pack episodes one after the other; what several contexts run through is stored where it is first met.

    Attributes:
        spans: Spans so far; they are numbered from 0 over the whole page.
        roots: Tokenizer and tools of contexts, by the number that turns name.
    """

    def __init__(self) -> None:
        self.spans = 0
        self.roots: list[dict[str, Any]] = []
        self._numbers: dict[bytes, int] = {}
        self._roots: dict[bytes, int] = {}

    def add(self, episode: Episode, marks: Sequence[DriftMark] | None) -> tuple[dict[str, Any], str]:
        """Pack an episode without its subagents.

        Args:
            episode: The episode.
            marks: Its drifts; None where nobody looked.

        Returns:
            Its line of the list, and its chunk.
        """
        first, chunk = self.spans, _Spans(self)
        turns = [{**_turn(turn), **chunk.place(turn)} for turn in episode.turns]
        document = {
            "first": first,
            "spans": chunk.spans,
            "turns": turns,
            "marks": [_mark(mark) for mark in marks or ()],
        }
        record = {
            **_head(episode),
            "first": first,
            "drifts": None if marks is None else len(marks),
        }
        return record, packed(document, chunk.ids, chunk.logprobs)


class _Spans:
    """Number the spans of one episode, and keep the new ones."""

    def __init__(self, book: Chunks) -> None:
        self._book = book
        self._known: dict[Context, tuple[int, bytes]] = {}
        self.spans: list[tuple[int, str, int, int, int]] = []
        self.ids: list[bytes] = []
        self.logprobs: list[bytes] = []

    def place(self, turn: Turn) -> dict[str, int]:
        """Return the numbers of a turn's root, context and completion."""
        pending: list[Context] = []
        for ancestor in turn.context.lineage():
            if ancestor in self._known:
                break
            pending.append(ancestor)
        for context in reversed(pending):
            parent, digest = self._root(context.root) if context.parent is None else self._known[context.parent]
            self._known[context] = self._number(parent, digest, context.span)
        number, digest = self._known[turn.context]
        answer = Span(turn.completion.ids_T, turn.completion.origin, turn.completion.logprobs_T)
        completion, _ = self._number(number, digest, answer)
        root = self._book._roots[self._root(turn.context.root)[1]]
        return {"root": root, "context": number, "completion": completion, "length": len(turn.context)}

    def _root(self, root: Root) -> tuple[int, bytes]:
        tools = tools_json(root)
        digest = root_digest(root, tools)
        if digest not in self._book._roots:
            self._book._roots[digest] = len(self._book.roots)
            self._book.roots.append(
                {"fingerprint": root.fingerprint, "vocab": root.vocab_size, "tools": _shown(root.tools)}
            )
        return -1, digest

    def _number(self, parent: int, before: bytes, span: Span) -> tuple[int, bytes]:
        digest = node_digest(before, span)
        number = self._book._numbers.get(digest)
        if number is None:
            number = self._book._numbers[digest] = self._book.spans
            self._book.spans += 1
            has_logprobs = span.logprobs_T is not None
            self.spans.append((parent, span.origin, len(span), int(has_logprobs), span.replaced))
            self.ids.append(ids_bytes(span.ids_T))
            if span.logprobs_T is not None:
                self.logprobs.append(logprobs_bytes(span.logprobs_T))
        return number, digest


def _head(episode: Episode) -> dict[str, Any]:
    head = episode.head
    return {
        "id": head.id,
        "task": head.task,
        "source": head.source,
        "group": head.group_id,
        "replica": head.replica,
        "seed": str(head.seed),  # as text: JavaScript's numbers end at 53 bits
        "parent": head.parent,
        "parent_turn": head.parent_turn,
        "role": head.role,
        "created": head.created,
        "status": episode.status,
        "success": episode.success,
        "failure": None if episode.failure is None else asdict(episode.failure),
        "return": episode.return_,
        "turns": len(episode.steps),
        "attempts": len(episode.turns),
        "sampled": sum(len(turn.completion.ids_T) for turn in episode.turns if turn.completion.origin == "sampled"),
        "longest": max((len(turn.context) + len(turn.completion.ids_T) for turn in episode.turns), default=0),
        "failures": sum(turn.failure is not None for turn in episode.turns),
    }


def _turn(turn: Turn) -> dict[str, Any]:
    completion, edge = turn.completion, turn.edge
    return {
        "index": turn.index,
        "attempt": turn.attempt,
        "used": turn.used,
        "edge": {
            "kind": edge.kind,
            "source": edge.source,
            "reason": edge.reason,
            "declared": edge.declared,
            "place": edge.place,
        },
        "messages": [_message(message) for message in turn.messages],
        "text": turn.text,
        "action": turn.action_text,
        "format_ok": turn.format_ok,
        "valid_action": turn.valid_action,
        "reward": turn.reward,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "truncation": turn.truncation,
        "seed": str(turn.seed),
        "started": turn.started,
        "ended": turn.ended,
        "failure": None if turn.failure is None else asdict(turn.failure),
        "facts": _shown(turn.facts) if turn.facts else "",
        "sent": turn.sent_digest,
        "finish": completion.finish_reason,
        "exact": completion.ids_exact,
        "note": completion.note,
        "logprob_kind": completion.logprobs,
        "versions": [list(run) for run in completion.weight_versions],
        "engine": completion.engine,
        "sampling": None if completion.sampling is None else completion.sampling.model_dump(),
        "evidence": _evidence(completion),
        "redacted": sorted(turn.redacted),
        "rl": mask_reason(turn, "rl"),
        "sft": mask_reason(turn, "sft"),
    }


def _evidence(completion: Completion) -> str:
    experts_T_L_K, support = completion.experts_T_L_K, completion.support
    parts = []
    if experts_T_L_K is not None:
        parts.append(f"{experts_T_L_K.shape[2]} experts in each of {experts_T_L_K.shape[1]} layers")
    if support is not None:
        parts.append(f"{len(support.ids_S)} ids that could be drawn")
    return ", ".join(parts)


def _message(message: Message) -> dict[str, Any]:
    document: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        document["reasoning"] = message.reasoning
    if message.tool_calls:
        document["calls"] = [
            {"name": call.name, "id": call.id, "status": call.status, "arguments": _arguments(call.arguments, call.raw)}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        document["answers"] = message.tool_call_id
    if message.name is not None:
        document["name"] = message.name
    if message.trusted:
        document["trusted"] = True
    if message.images:
        document["images"] = list(message.images)
    return document


def _arguments(arguments: Mapping[str, Any] | None, raw: str) -> str:
    return raw if arguments is None else to_json(arguments, where="arguments of a tool call")


def _mark(mark: DriftMark) -> dict[str, Any]:
    return {
        "kind": mark.kind,
        "turn": mark.turn,
        "position": mark.position,
        "count": mark.count,
        "extent": len(mark.exact),
        "exact": list(mark.exact[:_MOST_MARKED_IDS]),
        "text": list(mark.text[:_MOST_MARKED_IDS]),
        "detail": mark.detail,
    }


def _shown(document: object) -> str:
    """Return JSON for people: as text, so that the page shows each number with all its digits."""
    return json.dumps(document, indent=1, ensure_ascii=False, default=dict)
