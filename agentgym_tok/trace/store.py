"""The trace of a run: a folder of shards, one writer each."""

import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Self

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, TraceCorrupt, TraceError, unknown_name
from agentgym_tok.trace.lock import ShardLock
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.records import Episode, EpisodeHead, Failure, RunMeta, Status, Turn
from agentgym_tok.trace.shard import (
    check_meta,
    close_writer,
    create,
    is_empty,
    open_shard,
    read_meta,
    shard_path,
    shard_paths,
    writing,
)
from agentgym_tok.trace.writer import Writer

__all__ = ["TraceStore"]

_inherited: list[contextlib.ExitStack] = []
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TraceStore:
    """Write one shard of a run, and read all of them.

    Appending is thread-safe and returns after the commit: a killed process loses at most the turn in flight, a machine
    without power what the operating system had not written yet, never a part of a turn.

    Args:
        run: Folder of the run.
        shard: The shard to write, by default `"main"`; each process or node writes one of its own.
            In mode `"r"`: the only one to read; by default all.
        mode: `"a"` creates or continues a shard, `"r"` only reads.
        chat: The chat format of all ids; says what a new run is made with, and how its tokens are spelled.
        meta: More than `chat` says of what the run is made with; the first writer needs one of both, later ones are
            checked against it.
        token_text: Gives the text of an id, for people; stored once for each id. `chat.token_text` with a `chat`.

    Raises:
        StoreLocked: Another writer holds the shard.
        FingerprintMismatch: The run was made with another chat format.
        TraceCorrupt: A shard is damaged.
        TraceError: The folder or the format cannot be used.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        shard: str | None = None,
        mode: Literal["a", "r"] = "a",
        chat: ChatFormat | None = None,
        meta: RunMeta | None = None,
        token_text: Callable[[int], str] | None = None,
    ) -> None:
        if mode not in ("a", "r"):
            raise ConfigError("unknown mode of a store", where="TraceStore", got=repr(mode), expected='"a" or "r"')
        if shard is not None and not _NAME.fullmatch(shard):
            expected = "up to 64 letters, digits, dots, dashes, underscores"
            raise ConfigError("impossible name of a shard", where="TraceStore", got=repr(shard), expected=expected)
        if chat is not None:
            meta, token_text = meta or RunMeta.of(chat), token_text or chat.token_text
            check_meta(meta, RunMeta.of(chat), Path(run))
        self.run = Path(run)
        self._only = shard if mode == "r" else None
        self._own_shard = shard or "main"
        self._readers: dict[str, Reader] = {}
        self._writer: Writer | None = None
        self._process = os.getpid()
        self._mutex = threading.RLock()
        self._exit = contextlib.ExitStack()
        try:
            if mode == "a":
                self._meta = self._open_to_write(shard or "main", meta, token_text)
            else:
                self._meta = self._open_to_read(meta)
        except BaseException:
            with contextlib.suppress(TraceError):  # the first error is the one to see
                self._exit.close()
            raise

    def _open_to_write(self, shard: str, meta: RunMeta | None, token_text: Callable[[int], str] | None) -> RunMeta:
        path = shard_path(self.run, shard)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = "choose a folder that can be written"
            raise TraceError("the run cannot be created", where=self.run, got=error.strerror, fix=fix) from error
        self._exit.callback(ShardLock(path.with_suffix(".lock")).release)
        stored = next((reader.meta for reader in self._each_reader(but=shard)), None)
        if stored is None and meta is None and not path.exists():
            fix = "pass chat=, the chat format of the ids"
            raise TraceError("a new run must say what it is made with", where=self.run, got="no meta", fix=fix)
        connection = open_shard(path, write=True)
        self._exit.callback(close_writer, connection, path)
        with writing(path, "open"):
            if is_empty(connection):
                first = meta or stored
                if first is None:
                    raise TraceError("an empty shard must be told what it is made with", where=path, got="no meta")
                create(connection, first)
        own = read_meta(connection, path)
        for other in (stored, meta):
            if other is not None:
                check_meta(own, other, self.run)
        self._writer = Writer(connection, path, own, token_text)
        self._readers[shard] = Reader(connection, path)
        return own

    def _open_to_read(self, meta: RunMeta | None) -> RunMeta:
        reader = next(self._each_reader(), None)
        if reader is None:
            raise TraceError("there is no trace", where=self.run, expected="shards/*.sqlite", fix="look at the path")
        if meta is not None:
            check_meta(reader.meta, meta, self.run)
        return reader.meta

    def __repr__(self) -> str:
        return f"<TraceStore {str(self.run)!r}, {'writes' if self._writer else 'reads'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except TraceError:
            if kind is None:  # else the first error is the one to see
                raise

    def close(self) -> None:
        """Close all files and let go of the shard; a second call does nothing.

        Raises:
            TraceError: The disk refuses; all is stored and let go of, with the log still beside its shard.
        """
        if os.getpid() != self._process:
            # Files of another process: not even closing them is ours.
            _inherited.append(self._exit.pop_all())
            return
        with self._mutex:
            self._writer = None
            self._readers.clear()
            self._exit.close()

    @property
    def meta(self) -> RunMeta:
        """What the run was made with."""
        return self._meta

    # ---- writing

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Commit what this thread writes inside at once, which costs less; where something raises, nothing is stored.

        Other threads wait until it is over.

        Raises:
            TraceError: The disk refuses.
        """
        with self._alone(), self._own().together():
            yield

    def begin(self, head: EpisodeHead) -> None:
        """Write the head of an episode.

        Args:
            head: With an id that no other episode of the run has.

        Raises:
            TraceError: The id is taken by another head, or by an episode that has ended.
        """
        with self._alone():
            self._own().begin(head)

    def append(self, turn: Turn) -> None:
        """Write a turn and commit it; the same turn again changes nothing, so that a retry is safe.

        Args:
            turn: The next turn of its episode, or the next attempt at the last one.

        Raises:
            TraceError: It is out of order, stored with other content, or the disk refuses; what is stored is intact.
            FingerprintMismatch: Its ids belong to another chat format.
            InvalidIds: An id is outside the vocabulary.
        """
        with self._alone():
            self._own().append(turn)

    def finish(
        self, episode_id: str, status: Status = "done", success: bool | None = None, failure: Failure | None = None
    ) -> None:
        """Write the end of an episode.

        Args:
            episode_id: The episode.
            status: `done`, `failed` (then `failure` says why) or `abandoned`.
            success: The world's verdict.
            failure: What ended it.

        Raises:
            TraceError: It was never begun, or has ended otherwise.
        """
        with self._alone():
            self._own().finish(episode_id, status, success, failure)

    def add_image(self, body: bytes, media_type: str) -> str:
        """Store an image, once however often it is shown, before the turn whose messages show it.

        Args:
            body: The file.
            media_type: Such as `image/png`.

        Returns:
            Its sha256, hex: the name for `Message.images`.
        """
        with self._alone():
            return self._own().add_image(body, media_type)

    def note_tokens(self, texts: Mapping[int, str]) -> None:
        """Store the texts of ids, for people.

        Args:
            texts: Vocabulary entries; those of stored ids are left as they are.
        """
        with self._alone():
            self._own().note_tokens(texts)

    def _own(self) -> Writer:
        if self._writer is None:
            got = "closed, or opened to read"
            raise TraceError("the store does not write", where=self.run, got=got, fix='mode="a"')
        return self._writer

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # First, since after a fork nobody may ever let go of the mutex.
        if os.getpid() != self._process:
            raise TraceError(
                "a store does not survive a fork",
                where=self.run,
                got=f"process {os.getpid()}",
                expected=f"process {self._process}, which opened it",
                fix="open a shard of its own in each process: TraceStore(run, shard=...)",
            )
        with self._mutex:
            yield

    # ---- reading

    def __len__(self) -> int:
        """Return the number of rollouts, subagents not counted."""
        with self._alone():
            return sum(len(reader.names(roots=True)) for reader in self._each_reader())

    def episodes(self) -> Iterator[Episode]:
        """Yield all rollouts with their subagents, shard by shard in the order in which they were begun.

        Raises:
            TraceCorrupt: A record is damaged or missing.
        """
        with self._alone():
            names = [(reader, name) for reader in self._each_reader() for name in reader.names(roots=True)]
        for reader, name in names:
            with self._alone():
                episode = self._complete(reader, name, frozenset())
            if episode is not None:
                yield episode

    def episode(self, episode_id: str) -> Episode:
        """Return an episode with its subagents.

        Raises:
            UnknownName: No episode has this id.
            TraceCorrupt: A record is damaged or missing.
        """
        with self._alone():
            for reader in self._each_reader():
                episode = self._complete(reader, episode_id, frozenset())
                if episode is not None:
                    return episode
            known = [name for reader in self._each_reader() for name in reader.names(roots=False)]
        raise unknown_name("episode", episode_id, known, where=self.run)

    def heads(self) -> list[tuple[EpisodeHead, Status]]:
        """Return the head and status of every episode, subagents too, without reading turns."""
        with self._alone():
            return [entry for reader in self._each_reader() for entry in reader.heads()]

    def left_running(self) -> list[str]:
        """Return the ids of the episodes that nobody has ended in the shard that this store writes.

        A store that was just opened has it alone, so whoever wrote them is dead.
        """
        with self._alone():
            self._own()
            return [head.id for head, status in self._readers[self._own_shard].heads() if status == "running"]

    def image(self, sha256: str) -> tuple[str, bytes]:
        """Return the media type and the file of an image.

        Raises:
            UnknownName: No shard has it.
            TraceCorrupt: The file is not the one that was stored.
        """
        with self._alone():
            found = next(filter(None, (reader.image(sha256) for reader in self._each_reader())), None)
        if found is None:
            raise unknown_name("image", sha256, (), where=self.run)
        return found

    def tokens(self) -> dict[int, str]:
        """Return the stored texts of ids; no tokenizer is needed."""
        with self._alone():
            return {index: text for reader in self._each_reader() for index, text in reader.tokens().items()}

    def _complete(self, reader: Reader, name: str, above: frozenset[str]) -> Episode | None:
        if name in above:
            raise TraceCorrupt("an episode is its own subagent", where=self.run, got=name)
        episode = reader.episode(name)
        if episode is None:
            return None
        found = [
            self._complete(other, child, above | {name})
            for other in self._each_reader()
            for child in other.children(name)
        ]
        children = tuple(child for child in found if child is not None)
        return dataclasses.replace(episode, children=children) if children else episode

    def _each_reader(self, but: str = "") -> Iterator[Reader]:
        for path in shard_paths(self.run):
            shard = path.stem
            if shard == but or self._only not in (None, shard):
                continue
            if shard not in self._readers:
                with contextlib.ExitStack() as opened:
                    reader = opened.enter_context(Reader.opened(path))
                    if reader is None:
                        continue
                    self._readers[shard] = reader
                    self._exit.push(opened.pop_all())
            yield self._readers[shard]
