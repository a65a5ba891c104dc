"""Reading a trace back and proving that it keeps the laws."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym_tok.errors import FingerprintMismatch, TraceCorrupt, TraceError
from agentgym_tok.trace.accounting import Accounting
from agentgym_tok.trace.audit import audit, find_answers
from agentgym_tok.trace.exchange.prune import pruned
from agentgym_tok.trace.laws import (
    RECORD,
    Breach,
    Key,
    ReplayChat,
    check_accounting,
    check_answers,
    check_continuations,
    check_failure,
    check_fingerprint,
    check_sent,
    replay,
)
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.records import Episode, RunMeta
from agentgym_tok.trace.shard import reading, shard_paths

__all__ = ["Verification", "verify"]


@dataclass(frozen=True, slots=True)
class Verification:
    """Hold what a verification found.

    Args:
        run: The folder.
        shards: Shards read.
        episodes: Episodes, subagents too.
        turns: Attempts at turns.
        ids: Stored ids; each is stored once, however many contexts hold it.
        replayed: Turns whose ids were made again from their messages (law 4), with or without success.
        not_replayed: Turns where that was not tried; nothing is said about them.
        running: Episodes that nobody ended, subagents too; their writers may be at work or dead.
        redacted: Turns of which something was taken out, and is known by its digest alone.
        accounting: Where the ids of all turns went, for `rl` and for `sft`.
        breaches: What is wrong.
    """

    run: str
    shards: int
    episodes: int
    turns: int
    ids: int
    replayed: int
    not_replayed: int
    running: int
    redacted: int
    accounting: tuple[Accounting, Accounting]
    breaches: tuple[Breach, ...] = ()

    @property
    def ok(self) -> bool:
        """No law is broken."""
        return not self.breaches

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {
            "run": self.run,
            "ok": self.ok,
            "shards": self.shards,
            "episodes": self.episodes,
            "turns": self.turns,
            "ids": self.ids,
            "replayed": self.replayed,
            "not_replayed": self.not_replayed,
            "running": self.running,
            "redacted": self.redacted,
            "accounting": [accounting.to_dict() for accounting in self.accounting],
            "breaches": [breach.to_dict() for breach in self.breaches],
        }


def verify(run: str | Path, chat: ReplayChat | None = None) -> Verification:
    """Prove that a trace is what was written and keeps laws 1 to 6 of the design, or list where it does not.

    Args:
        run: Folder of the run.
        chat: The chat format that made it, to make contexts again from their messages (law 4).

    Raises:
        TraceError: There is no trace, it cannot be read, or its format is newer than this library.
        FingerprintMismatch: `chat` is another format than the run's.
    """
    folder = Path(run)
    paths = shard_paths(folder)
    if not paths:
        raise TraceError("there is no trace", where=folder, expected="shards/*.sqlite", fix="look at the path")
    found = _Findings(chat)
    for path in paths:
        try:
            with Reader.opened(path) as reader:
                if reader is not None:
                    found.read(reader)
        except TraceCorrupt as error:
            found.breaches.append(Breach(RECORD, "", None, str(error)))
    found.breaches.extend(found.family_breaches())
    found.breaches.extend(found.answer_breaches(folder, paths))
    return Verification(
        run=str(folder),
        shards=len(paths),
        episodes=len(found.parents),
        turns=found.turns,
        ids=found.ids,
        replayed=found.replayed,
        not_replayed=found.turns - found.replayed,
        running=found.running,
        redacted=found.redacted,
        accounting=(found.rl, found.sft),
        breaches=tuple(found.breaches),
    )


@dataclass(slots=True)
class _Findings:
    chat: ReplayChat | None
    meta: RunMeta | None = None
    parents: dict[str, str | None] = field(default_factory=dict)
    turns: int = 0
    ids: int = 0
    replayed: int = 0
    running: int = 0
    redacted: int = 0
    rl: Accounting = field(default_factory=lambda: Accounting("rl"))
    sft: Accounting = field(default_factory=lambda: Accounting("sft"))
    breaches: list[Breach] = field(default_factory=list)
    unanswered: list[tuple[Key, Breach]] = field(default_factory=list)

    def read(self, reader: Reader) -> None:
        if self.meta is None:
            self.meta = reader.meta
        if self.chat is not None and self.chat.fingerprint != reader.meta.fingerprint:
            raise FingerprintMismatch(
                "another chat format cannot replay this trace",
                where=reader.path,
                got=self.chat.fingerprint[:16],
                expected=f"{reader.meta.fingerprint[:16]} ({reader.meta.chat or 'unnamed'})",
                fix="make the format that the run was made with",
            )
        if (reader.meta.fingerprint, reader.meta.vocab_size) != (self.meta.fingerprint, self.meta.vocab_size):
            message = f"{reader.path.name} was made with another chat format"
            self.breaches.append(Breach(5, "", None, message))
        with reader.snapshot():
            self.breaches.extend(audit(reader))
            with reading(reader.path, "nodes"):
                self.ids += reader.connection.execute("SELECT coalesce(sum(length), 0) FROM nodes").fetchone()[0]
            for name in reader.names(roots=False):
                try:
                    self.episode(reader, name)
                except TraceCorrupt as error:
                    self.breaches.append(Breach(RECORD, name, None, str(error)))

    def episode(self, reader: Reader, name: str) -> None:
        if name in self.parents:
            self.breaches.append(Breach(RECORD, name, None, "two shards hold an episode of this id"))
        self.parents[name] = None
        episode = reader.episode(name, prove=False)  # the audit has done so
        if episode is None:
            raise TraceCorrupt("an episode is listed and not found", where=reader.path, got=name)
        self.parents[name] = episode.head.parent
        self.turns += len(episode.turns)
        self.running += episode.status == "running"
        self.redacted += sum(bool(turn.redacted) for turn in episode.turns)
        with reading(reader.path, f"episode {name}"):
            self.breaches.extend(self.laws(episode, reader.meta))

    def laws(self, episode: Episode, meta: RunMeta) -> Iterator[Breach]:
        yield from check_continuations(episode)
        yield from check_sent(episode)
        rl, rl_breaches = check_accounting(episode, "rl")
        sft, sft_breaches = check_accounting(episode, "sft")
        self.rl, self.sft = self.rl + rl, self.sft + sft
        yield from (*rl_breaches, *sft_breaches)
        self.unanswered.extend(check_answers(episode))
        if self.chat is not None:
            for breach in replay(episode, self.chat):
                self.replayed += 1
                if breach is not None:
                    yield breach
        yield from check_fingerprint(episode, meta)
        yield from check_failure(episode)

    def family_breaches(self) -> Iterator[Breach]:
        for name, parent in self.parents.items():
            if parent is not None and parent not in self.parents:
                yield Breach(RECORD, name, None, f"its parent {parent} is not in the run")

    def answer_breaches(self, folder: Path, paths: Sequence[Path]) -> Iterator[Breach]:
        """Look in the whole run for answers that an episode lacks."""
        if not self.unanswered or pruned(folder):  # who has them may be what was left out
            return
        missing = {key for key, _ in self.unanswered}
        for path in paths:
            with contextlib.suppress(TraceCorrupt), Reader.opened(path) as reader:  # whose damage is known by now
                if reader is not None:
                    missing.difference_update(list(find_answers(reader, missing)))
        yield from (breach for key, breach in self.unanswered if key in missing)
