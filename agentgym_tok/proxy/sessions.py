"""Sessions by their keys: minted, found again in constant time, and ended, after which a key opens nothing."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any, get_args

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.session import Session
from agentgym_tok.trace import EpisodeHead, Failure, Status, TraceStore

__all__ = ["Sessions", "TooMany"]

_LOG = logging.getLogger(__name__)
_PREFIX = "sk-agt-"
_AT_A_TIME = 16
_ENDED = Failure("client", "SessionEnded", "the session ended before its answer")


class TooMany(ConfigError):
    """There are as many sessions as there may be."""


class Sessions:
    """Keep the sessions that are open.

    Args:
        chat: Tokenizer and template.
        store: Where episodes go.
        journal: Writes to it.
        source: The name that scores carry.
        most: Most sessions at a time.
        idle_s: A session that is asked nothing for so long is abandoned, in seconds.
        any_key: A key that nobody minted opens a session of its own.
    """

    def __init__(
        self,
        chat: ChatFormat,
        store: TraceStore,
        journal: Journal,
        *,
        source: str,
        most: int,
        idle_s: float,
        any_key: bool,
    ) -> None:
        self._chat, self._store, self._journal = chat, store, journal
        self._source, self._most, self._idle_s, self._any_key = source, most, idle_s, any_key
        # By digest: a lookup takes the same time for every key, and no key is kept.
        self._by_key: dict[bytes, Session] = {}
        self._ended: set[bytes] = set()
        self._by_id: dict[str, Session] = {}

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        """Yield those that are open."""
        return iter(list(self._by_id.values()))

    def mint(self, *, key: str | None = None, parent: str | None = None, **head: Any) -> tuple[Session, str]:
        """Open a session.

        Args:
            key: Its key; a new one that nobody can guess without it.
            parent: Id of the session whose agent opened this one as a subagent.
            head: Fields of `EpisodeHead`, such as `task`, `group_id`, `replica`, `seed` and `parent_turn`.

        Returns:
            The session and its key.

        Raises:
            TooMany: There is no room for it.
            UnknownName: There is no such parent.
        """
        if len(self) >= self._most:
            raise TooMany("too many sessions are open", where="proxy", got=len(self), fix="end some, or allow more")
        if parent is not None:
            head["parent"] = self.by_id(parent).head.id
        key = key or _PREFIX + secrets.token_urlsafe(24)
        head = {"id": secrets.token_hex(16), "task": "", "source": self._source, **head}
        session = Session(EpisodeHead(**head), self._chat, self._store, self._journal)
        self._by_id[session.head.id] = session
        self._by_key[_digest(key)] = session
        return session, key

    def by_key(self, key: str, parent: str | None = None) -> Session | None:
        """Return the session that a key opens; None where it opens none.

        Args:
            key: As the client sent it.
            parent: Where any key opens a session: the key of the session that this one is a subagent of.
        """
        digest = _digest(key)
        found = self._by_key.get(digest)
        if found is not None or not self._any_key or not key or digest in self._ended:
            return found
        above = None if parent is None else self._by_key.get(_digest(parent))
        return self.mint(key=key, parent=None if above is None else above.head.id)[0]

    def by_id(self, name: str) -> Session:
        """Return a session.

        Raises:
            UnknownName: None that is open has this id.
        """
        found = self._by_id.get(name)
        if found is None:
            raise unknown_name("session", name, (), where="proxy")
        return found

    def end(
        self, session: Session, status: Status = "done", success: bool | None = None, failure: Failure | None = None
    ) -> None:
        """End a session: what is being drawn is broken off, all is written, and its key opens nothing any more.

        Sessions of its subagents that are still open are abandoned.

        Raises:
            ConfigError: An episode cannot end so.
        """
        if status == "running" or status not in get_args(Status) or (status == "failed") != (failure is not None):
            got = f"{status!r} {'with' if failure else 'without'} a failure"
            expected = "done or abandoned, or failed with its failure"
            raise ConfigError("no end of a session", where=f"session {session.head.id}", got=got, expected=expected)
        for child in [one for one in self if one.head.parent == session.head.id]:
            self.end(child, "abandoned")
        for draft in list(session.drawing):
            draft.break_off(_ENDED)
        session.closing = (status, success, failure)
        for digest in [digest for digest, one in self._by_key.items() if one is session]:
            del self._by_key[digest]
            if self._any_key:
                self._ended.add(digest)
        if not session.drawing:
            self.close(session)

    def close(self, session: Session) -> None:
        """Write the end of a session that is being ended, once nothing of it is being drawn."""
        if session.closing is not None and not session.drawing:
            session.end(*session.closing)
            self._by_id.pop(session.head.id, None)

    async def reap(self) -> None:
        """Write what waits long enough, and abandon sessions that nobody asks; others get on with it in between."""
        for place, session in enumerate(self):
            if place % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            if session.closing is not None:
                continue
            now = time.monotonic()
            try:
                session.reap()
                if now - session.active > self._idle_s and not session.drawing:
                    self.end(session, "abandoned")
            except Exception:  # noqa: BLE001  # one session that fails is not the end of the others
                _LOG.exception("session %s could not be tended", session.head.id)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
