"""Appending to a shard: each turn is one transaction, and costs the spans that are new."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agentgym_tok.errors import FingerprintMismatch, TraceError
from agentgym_tok.tokens import Context, Ids, Span, as_ids
from agentgym_tok.trace.chain import Value, seal, short_seal
from agentgym_tok.trace.encoding import end_seal, failure_json, head_cells, settings_json, texts_json, turn_cells
from agentgym_tok.trace.evidence import evidence_cells, evidence_seal
from agentgym_tok.trace.nodes import NodeTable
from agentgym_tok.trace.records import ENDED, EpisodeHead, Failure, RunMeta, Status, Turn
from agentgym_tok.trace.schema import HEAD, TURN
from agentgym_tok.trace.shard import EPISODES, write_meta, writing

__all__ = ["Writer"]

_MOST_SETTINGS = 256
_REFERENCES = ("episode", "seq", "context", "completion", "settings")


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608  # own names


_INSERT_EPISODE = _insert("episodes", (*HEAD, "status", "turns", "tip"))
_HEAD_OF = f"SELECT status, {', '.join(HEAD)} FROM episodes"  # noqa: S608
_INSERT_TURN = _insert("turns", (*_REFERENCES, *TURN, "hash"))


@dataclass(slots=True)
class _Progress:
    """Where an episode stands in the file."""

    id: int
    status: Status
    turns: int
    tip: bytes
    index: int
    attempt: int
    used: bool


class Writer:
    """Append heads, turns and ends of episodes to one shard.

    Args:
        connection: Of a shard that has its tables; this object's alone.
        path: The file, for messages.
        meta: What the run was made with.
        token_text: Gives the text of an id, for people.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, meta: RunMeta, token_text: Callable[[int], str] | None
    ) -> None:
        self._connection = connection
        self._path = path
        self._meta = meta
        self._token_text = token_text
        self._progress: dict[str, _Progress] = {}
        self._together = False
        with writing(path, "open"):
            self._learn()

    def _learn(self) -> None:
        """Know nothing but what the file says."""
        self._progress.clear()
        self._settings: dict[str, int] = {}
        self._nodes = NodeTable(self._connection)
        self._noted = np.zeros(self._meta.vocab_size, dtype=bool)
        self._noted[[row["id"] for row in self._connection.execute("SELECT id FROM tokens")]] = True

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Commit what is written inside at once; where something raises, nothing of it is stored."""
        with writing(self._path, "write together"):
            self._connection.execute("BEGIN IMMEDIATE")
        self._together = True
        try:
            yield
            with writing(self._path, "write together"):
                self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._learn()
            raise
        finally:
            self._together = False

    # ---- episodes

    def begin(self, head: EpisodeHead) -> None:
        """Write the head of an episode; again with an equal head, nothing."""
        cells = head_cells(head)
        tip = seal(b"", cells)
        with writing(self._path, f"begin {head.id}"):
            row = self._connection.execute(f"{_HEAD_OF} WHERE name = ?", (head.id,)).fetchone()
            if row is not None:
                if tuple(row)[1:] != cells or row["status"] != "running":
                    got = f"a {row['status']} episode" if tuple(row)[1:] == cells else "another head"
                    fix = "give each rollout an id of its own"
                    raise TraceError(
                        "the episode was begun before", where=head.id, got=got, expected="a new id", fix=fix
                    )
                return
            with self._transaction():
                number = self._connection.execute(_INSERT_EPISODE, (*cells, "running", 0, tip)).lastrowid
                write_meta(self._connection, EPISODES, str(number))
        assert number is not None
        self._progress[head.id] = _Progress(number, "running", 0, tip, -1, 0, used=True)

    def finish(self, episode: str, status: Status, success: bool | None, failure: Failure | None) -> None:
        """Write the end of an episode; again with an equal end, nothing."""
        if status not in ENDED or (status == "failed") != (failure is not None):
            got = f"{status!r} {'with' if failure else 'without'} a failure"
            expected = "done or abandoned, or failed with its failure"
            raise TraceError("no end of an episode", where=episode, got=got, expected=expected)
        verdict, reason = None if success is None else int(success), failure_json(failure)
        with writing(self._path, f"finish {episode}"):
            progress = self._stand(episode)
            if progress.status != "running":
                self._same_end(episode, progress, (status, verdict, reason))
                return
            tip = end_seal(progress.tip, status, verdict, reason)
            self._connection.execute(
                "UPDATE episodes SET status = ?, success = ?, failure = ?, tip = ? WHERE id = ?",
                (status, verdict, reason, tip, progress.id),
            )

    def _same_end(self, episode: str, progress: _Progress, end: tuple[Value, ...]) -> None:
        row = self._connection.execute(
            "SELECT status, success, failure FROM episodes WHERE id = ?", (progress.id,)
        ).fetchone()
        if tuple(row) != end:
            raise TraceError("the episode has ended otherwise", where=episode, got=end, expected=tuple(row))

    def _stand(self, episode: str) -> _Progress:
        # Taken out until the change is committed: an interrupt may come at any moment, and the file knows best.
        progress = self._progress.pop(episode, None)
        if progress is not None:
            return progress
        row = self._connection.execute(
            "SELECT id, status, turns, tip FROM episodes WHERE name = ?", (episode,)
        ).fetchone()
        if row is None:
            fix = "call begin(EpisodeHead(...)) first"
            raise TraceError("the episode was never begun", where=self._path, got=repr(episode), fix=fix)
        last = self._connection.execute(
            "SELECT turn, attempt, (SELECT max(used) FROM turns AS all_ WHERE all_.episode = last.episode"
            " AND all_.turn = last.turn) AS used FROM turns AS last WHERE episode = ? ORDER BY seq DESC LIMIT 1",
            (row["id"],),
        ).fetchone()
        place = (-1, 0, True) if last is None else (last["turn"], last["attempt"], bool(last["used"]))
        return _Progress(row["id"], row["status"], row["turns"], row["tip"], *place)

    # ---- turns

    def append(self, turn: Turn) -> None:
        """Write a turn and commit; again with equal content, nothing.

        Raises:
            TraceError: It is out of order, its content differs from what is stored, or the disk refuses.
            FingerprintMismatch: Its ids belong to another chat format.
            InvalidIds: An id is outside the vocabulary.
        """
        where = f"turn {turn.index}, attempt {turn.attempt} of {turn.episode}"
        self._check_root(turn.context, where)
        if turn.redacted:
            fix = "copy it as it stands: agentgym-tok trace merge"
            got = f"its {' and '.join(sorted(turn.redacted))} were taken out"
            raise TraceError("a redacted turn cannot be sealed again", where=where, got=got, fix=fix)
        completion = turn.completion
        texts = texts_json(turn)
        evidence = evidence_seal(completion.experts_T_L_K, completion.support)
        cells = turn_cells(turn, evidence, short_seal(b"", (texts,)))
        settings = settings_json(completion.engine, completion.sampling)
        answer = Span(completion.ids_T, completion.origin, completion.logprobs_T)
        plan = self._nodes.plan(turn.context, turn.context.extend(answer).span)
        sealed = (plan.context_digest, plan.answer_digest, settings, *cells)
        with writing(self._path, f"append {where}"):
            progress = self._stand(turn.episode)
            if (turn.index, turn.attempt) <= (progress.index, progress.attempt):
                self._same_turn(progress, turn, sealed, where)
                return
            _check_order(progress, turn, where)
            self._check_images(turn, where)
            tip = seal(progress.tip, sealed)
            with self._transaction():
                references = (progress.id, progress.turns, *self._nodes.store(plan), self._store_settings(settings))
                row = self._connection.execute(_INSERT_TURN, (*references, *cells, tip)).lastrowid
                self._connection.execute("INSERT INTO texts VALUES (?, ?)", (row, texts))
                if evidence is not None:
                    said = (row, *evidence_cells(completion))
                    self._connection.execute("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", said)
                self._connection.execute(
                    "UPDATE episodes SET turns = ?, tip = ? WHERE id = ?", (progress.turns + 1, tip, progress.id)
                )
                noted = self._store_tokens(plan.new_ids)
        self._nodes.committed(plan)
        self._noted[noted] = True
        used = turn.used or (progress.used and turn.index == progress.index)
        self._progress[turn.episode] = _Progress(
            progress.id, "running", progress.turns + 1, tip, turn.index, turn.attempt, used
        )

    def _check_root(self, context: Context, where: str) -> None:
        root = context.root
        if (root.fingerprint, root.vocab_size) != (self._meta.fingerprint, self._meta.vocab_size):
            raise FingerprintMismatch(
                "the turn's ids belong to another chat format",
                where=where,
                got=f"{root.fingerprint[:16]} with {root.vocab_size} ids",
                expected=f"{self._meta.fingerprint[:16]} with {self._meta.vocab_size} ids",
                fix="write each chat format to a run of its own",
            )

    def _same_turn(self, progress: _Progress, turn: Turn, sealed: tuple[Value, ...], where: str) -> None:
        row = self._connection.execute(
            "SELECT this.hash AS hash, before.hash AS before FROM turns AS this LEFT JOIN turns AS before"
            " ON before.episode = this.episode AND before.seq = this.seq - 1"
            " WHERE this.episode = ? AND this.turn = ? AND this.attempt = ?",
            (progress.id, turn.index, turn.attempt),
        ).fetchone()
        if row is None:
            last = f"turn {progress.index}, attempt {progress.attempt}"
            raise TraceError(
                "turns are written in their order", where=where, got="an older one", expected=f"after {last}"
            )
        before = row["before"]
        if before is None:
            head = self._connection.execute(f"{_HEAD_OF} WHERE id = ?", (progress.id,)).fetchone()
            before = seal(b"", tuple(head)[1:])
        if seal(before, sealed) != row["hash"]:
            fix = "another sample of the same turn is another attempt"
            raise TraceError("the turn is stored with other content", where=where, fix=fix)

    def _store_settings(self, body: str) -> int:
        if body in self._settings:
            return self._settings[body]
        row = self._connection.execute("SELECT id FROM settings WHERE body = ?", (body,)).fetchone()
        if row is None:
            number = self._connection.execute("INSERT INTO settings (body) VALUES (?)", (body,)).lastrowid
            assert number is not None
            return number  # of what may yet be rolled back
        if len(self._settings) >= _MOST_SETTINGS:
            self._settings.clear()
        self._settings[body] = int(row["id"])
        return self._settings[body]

    # ---- images

    def add_image(self, body: bytes, media_type: str) -> str:
        """Store an image, once however often it is shown; return its name."""
        name = hashlib.sha256(body).hexdigest()
        cells = (name, media_type, body, short_seal(b"", (name, media_type)))
        with writing(self._path, f"add image {name}"):
            statement = "INSERT OR IGNORE INTO images (sha256, type, body, digest) VALUES (?, ?, ?, ?)"
            self._connection.execute(statement, cells)
        return name

    def _check_images(self, turn: Turn, where: str) -> None:
        for name in {name for message in turn.messages for name in message.images}:
            if self._connection.execute("SELECT 1 FROM images WHERE sha256 = ?", (name,)).fetchone() is None:
                fix = "store the file first: name = store.add_image(body, media_type)"
                raise TraceError("a message shows an image that is not stored", where=where, got=name, fix=fix)

    # ---- token texts

    def note_tokens(self, texts: Mapping[int, str]) -> None:
        """Store the texts of ids, for people; what is stored stays."""
        as_ids(list(texts), where="note_tokens", vocab_size=self._meta.vocab_size)
        with writing(self._path, "note tokens"), self._transaction():
            self._insert_tokens(texts)

    def _store_tokens(self, spans: list[Ids]) -> list[int]:
        if self._token_text is None:
            return []
        new = [ids_T[~self._noted[ids_T]] for ids_T in spans]
        if not any(map(len, new)):
            return []
        ids: list[int] = np.unique(np.concatenate(new)).tolist()
        self._insert_tokens({index: self._token_text(index) for index in ids})
        return ids

    def _insert_tokens(self, texts: Mapping[int, str]) -> None:
        rows = [(int(index), text, short_seal(b"", (int(index), text))) for index, text in texts.items()]
        self._connection.executemany("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?)", rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._together:  # whoever writes all of it commits it
            yield
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _check_order(progress: _Progress, turn: Turn, where: str) -> None:
    if progress.status != "running":
        raise TraceError("the episode has ended", where=where, got=f"status {progress.status}", expected="running")
    expected = {(progress.index + 1, 0)}
    if progress.index >= 0:
        expected.add((progress.index, progress.attempt + 1))
    if (turn.index, turn.attempt) not in expected:
        wanted = " or ".join(f"turn {index}, attempt {attempt}" for index, attempt in sorted(expected))
        fix = "write every turn and every attempt, in order"
        raise TraceError("a turn is missing before this one", where=where, expected=wanted, fix=fix)
    if turn.used and progress.used and turn.index == progress.index:
        fix = "mark the attempts that were thrown away used=False"
        raise TraceError("another attempt of this turn is marked used", where=where, fix=fix)
