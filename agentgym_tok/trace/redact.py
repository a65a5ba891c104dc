"""Taking secrets out of a trace: what is gone is named, counted and never trained, and the chain stays whole."""

import contextlib
import dataclasses
import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from agentgym_tok.chat import ChatFormat, Detokenizer
from agentgym_tok.errors import ConfigError, FingerprintMismatch, TraceError
from agentgym_tok.tokens import Span
from agentgym_tok.trace.chain import node_digest, redaction_seal, short_seal
from agentgym_tok.trace.codec import pack_ids
from agentgym_tok.trace.drafts import new_folder
from agentgym_tok.trace.encoding import span_from, to_json
from agentgym_tok.trace.evidence import evidence_from, evidence_seal
from agentgym_tok.trace.schema import HEAD
from agentgym_tok.trace.shard import open_shard, read_meta, reading, shard_paths, write_meta, writing
from agentgym_tok.types import Experts, Support

__all__ = ["Redaction", "redact"]

FILLER: Final = "\N{FULL BLOCK}"
"""Stands for each character that was taken out, so that character ranges stay what they were."""

_TAIL: Final = 512
"""Ids before a span that are looked at with it, for what runs over its beginning."""

_SUPPORTED: Final = """
    SELECT turns.id, turns.evidence FROM turns JOIN evidence ON evidence.turn = turns.id
    WHERE completion = ? AND counts IS NOT NULL
"""
_DIGESTS: Final = """
    SELECT nodes.digest, coalesce(before.digest, roots.digest) FROM nodes
    LEFT JOIN nodes AS before ON before.id = nodes.parent LEFT JOIN roots ON roots.id = nodes.root WHERE nodes.id = ?
"""


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hold what was taken out.

    Args:
        spans: Spans of ids that were changed.
        ids: Ids that were blanked in them.
        texts: Turns of which some free text was changed.
        images: Images of the run; nobody looked into them.
    """

    spans: int = 0
    ids: int = 0
    texts: int = 0
    images: int = 0


def redact(
    run: str | Path, out: str | Path, patterns: Sequence[re.Pattern[str]], *, chat: ChatFormat, rule: str
) -> Redaction:
    """Copy a trace without what patterns match; the trace itself stays as it is.

    Matched ids become that of `_` and matched characters full blocks, as many as there were. The digests of what is
    gone stay, so that the chain can be checked, and so can a guess: who thinks that he knows a secret can prove it.

    Args:
        run: Folder of the run.
        out: Folder of the copy; it must not exist.
        patterns: What to take out, in decoded text.
        chat: The run's format, to read ids.
        rule: What was looked for, for people; recorded, so never the secret itself.

    Raises:
        TraceError: There is no trace, `out` exists, or a match stands where the chain has no place for a redaction: in
            the head of an episode, in tools, or in the name of an engine.
        FingerprintMismatch: `chat` is another format than the run's.
        ConfigError: No pattern is given, or one matches the rule or nothing at all.
    """
    if not patterns or any(pattern.search("") or pattern.search(rule) for pattern in patterns):
        expected = "patterns that match some text, and not their own description"
        raise ConfigError("nothing to look for", where="redact", got=f"{len(patterns)} patterns", expected=expected)
    folder = Path(run)
    shards = shard_paths(folder)
    if not shards:
        raise TraceError("there is no trace", where=folder, expected="shards/*.sqlite", fix="look at the path")
    with new_folder(Path(out)) as draft:
        (draft / "shards").mkdir()
        found = [_Shard.copied(path, draft / "shards" / path.name, patterns, chat, rule) for path in shards]
    return Redaction(*(sum(values) for values in zip(*map(dataclasses.astuple, found), strict=True)))


@dataclass(slots=True)
class _Shard:
    """Redact one shard in place."""

    connection: sqlite3.Connection
    path: Path
    patterns: Sequence[re.Pattern[str]]
    chat: ChatFormat
    rule: str
    made: float = field(default_factory=time.time)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def copied(
        cls, source: Path, target: Path, patterns: Sequence[re.Pattern[str]], chat: ChatFormat, rule: str
    ) -> Redaction:
        """Copy a shard and redact the copy."""
        with writing(target, "copy"), contextlib.closing(open_shard(source, write=False)) as original:
            meta = read_meta(original, source)
            if meta.fingerprint != chat.fingerprint:
                raise FingerprintMismatch(
                    "another chat format cannot read these ids",
                    where=source,
                    got=chat.fingerprint[:16],
                    expected=f"{meta.fingerprint[:16]} ({meta.chat or 'unnamed'})",
                    fix="make the format that the run was made with",
                )
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as connection:
                original.backup(connection)
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("PRAGMA secure_delete = ON")
                shard = cls(connection, target, patterns, chat, rule)
                with reading(target, "redact"):
                    connection.execute("BEGIN")
                    shard.refuse_elsewhere()
                    shard.nodes()
                    shard.turns()
                    shard.documents()
                    connection.execute("COMMIT")
                connection.execute("VACUUM")  # free pages and slack may hold what was taken out
                (images,) = connection.execute("SELECT count(*) FROM images").fetchone()
                return Redaction(images=images, **shard.counts)

    # ---- text

    def plain(self, text: str) -> str:
        """Return a text with every match blanked."""
        for pattern in self.patterns:
            text = pattern.sub(lambda match: FILLER * len(match[0]), text)
        return text

    def document(self, value: Any) -> Any:
        """Return a JSON document with every match blanked, in keys and values."""
        match value:
            case str():
                return self.plain(value)
            case list():
                return [self.document(item) for item in value]
            case dict():
                return {self.plain(key): self.document(item) for key, item in value.items()}
        return value

    def json(self, body: str, where: str) -> str:
        """Return JSON with every match blanked; the very same text where there is none."""
        before = json.loads(body)
        after = self.document(before)
        return body if after == before else to_json(after, where=where)

    def refuse_elsewhere(self) -> None:
        """Refuse matches in records that others depend on.

        Raises:
            TraceError: There is one.
        """
        cells = [("roots", "tools"), ("settings", "body"), *(("episodes", name) for name in HEAD)]
        for table, column in (*cells, ("episodes", "failure")):
            for number, text in self.connection.execute(f"SELECT id, {column} FROM {table}"):  # noqa: S608  # own names
                if isinstance(text, str) and any(pattern.search(text) for pattern in self.patterns):
                    fix = "leave these episodes out (trace prune), then redact"
                    got = f"a match in {column} of record {number}"
                    raise TraceError(
                        "it cannot be taken out here", where=f"{self.path.stem}: {table}", got=got, fix=fix
                    )

    def record(self, kind: str, number: int, digest: bytes, body: bytes) -> None:
        """Write down that a record was redacted; a second redaction takes the first one's place."""
        cells = (self.rule, self.made, body, redaction_seal(kind, digest, self.rule, self.made, body))
        changed = self.connection.execute(
            "UPDATE redactions SET rule = ?, made = ?, body = ?, digest = ? WHERE kind = ? AND record = ?",
            (*cells, kind, number),
        )
        if not changed.rowcount:
            statement = "INSERT INTO redactions (rule, made, body, digest, kind, record) VALUES (?, ?, ?, ?, ?, ?)"
            self.connection.execute(statement, (*cells, kind, number))

    # ---- ids

    def nodes(self) -> None:
        """Blank the ids of all matches, span by span."""
        marked: dict[int, set[int]] = {}
        for (number,) in self.connection.execute("SELECT id FROM nodes ORDER BY id").fetchall():
            for node, place in self._matched(number):
                marked.setdefault(node, set()).add(place)
        for number, places in marked.items():
            self._blank(number, sorted(places))

    def _span(self, number: int) -> tuple[Span, int | None]:
        row = self.connection.execute("SELECT * FROM nodes WHERE id = ?", (number,)).fetchone()
        return span_from(row), row["parent"]

    def _matched(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the span and place of each matched id, where the match ends in this span."""
        span, parent = self._span(number)
        ids, owners = span.ids_T.tolist(), [(number, place) for place in range(len(span))]
        own = len(ids)
        while parent is not None and len(ids) - own < _TAIL:
            node = parent
            span, parent = self._span(node)
            ids[:0] = span.ids_T.tolist()
            owners[:0] = [(node, place) for place in range(len(span))]
        text, ends = self._text(ids)
        begin = len(ids) - own
        for pattern in self.patterns:
            for match in pattern.finditer(text):
                first = int(np.searchsorted(ends, match.start(), side="right"))
                last = int(np.searchsorted(ends, match.end(), side="left"))
                if last >= begin:
                    yield from owners[first : last + 1]

    def _text(self, ids: Iterable[int]) -> tuple[str, list[int]]:
        """Return the text of ids, and for each id where its text ends; half a character ends with its other half."""
        stream, text, ends = Detokenizer(self.chat), "", []
        pieces = [stream.push([index]) for index in ids]
        pieces[-1:] = [piece + stream.finish() for piece in pieces[-1:]]
        place = 0
        for piece in pieces:
            place += len(piece)
            ends.append(place)
        text = "".join(pieces)
        return text, ends

    def _blank(self, number: int, places: list[int]) -> None:
        span, _ = self._span(number)
        ids_T = span.ids_T.copy()
        ids_T[places] = self.chat.encode("_")[0]  # never a control token
        digest, before = self.connection.execute(_DIGESTS, (number,)).fetchone()
        self.connection.execute("UPDATE nodes SET ids = ? WHERE id = ?", (pack_ids(ids_T), number))
        body = node_digest(before, Span(ids_T, span.origin, span.logprobs_T, span.replaced))
        self.record("nodes", number, digest, body)
        self.counts["spans"] += 1
        self.counts["ids"] += len(places)
        for turn, seal in self.connection.execute(_SUPPORTED, (number,)).fetchall():
            # What a token could have been says much of what it was.
            none = Support(np.zeros(len(span), np.int32), np.empty(0, np.int32))
            cells = (pack_ids(none.counts_T), pack_ids(none.ids_S), turn)
            self.connection.execute("UPDATE evidence SET counts = ?, support = ? WHERE turn = ?", cells)
            self.record("evidence", turn, seal, evidence_seal(self._experts(turn, len(span)), none) or b"")

    def _experts(self, turn: int, length: int) -> Experts | None:
        row = self.connection.execute("SELECT * FROM evidence WHERE turn = ?", (turn,)).fetchone()
        return evidence_from(row, length)[0]

    # ---- turns

    def turns(self) -> None:
        """Blank matches in all that is free text in turns."""
        select = "SELECT id, texts, body FROM turns JOIN texts ON texts.turn = turns.id"
        for turn, digest, before in self.connection.execute(select).fetchall():
            body = self.json(before, f"texts of turn record {turn}")
            if body != before:
                self.connection.execute("UPDATE texts SET body = ? WHERE turn = ?", (body, turn))
                self.record("texts", turn, digest, short_seal(b"", (body,)))
                self.counts["texts"] += 1

    def documents(self) -> None:
        """Blank matches in the documents about the shard, which no chain covers."""
        for name, body in self.connection.execute("SELECT name, body FROM meta").fetchall():
            write_meta(self.connection, name, self.json(body, f"document {name}"))
