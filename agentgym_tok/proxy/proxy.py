"""The proxy, in a thread beside the agents that it records or in a process of its own (extra `serve`)."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import uvicorn

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, ResetNeeded, TraceError
from agentgym_tok.policies import load_policy
from agentgym_tok.policies.http.loop_thread import new_loop
from agentgym_tok.proxy.app import Application, Settings  # says what is missing of the extra
from agentgym_tok.proxy.limits import Limits
from agentgym_tok.proxy.serving import Server, is_loopback, listen
from agentgym_tok.proxy.session import Session
from agentgym_tok.trace import Episode, Failure, Status, TraceStore
from agentgym_tok.types import Policy, Sampling

__all__ = ["Proxy", "ProxySession"]

_T = TypeVar("_T")
_KEEP_ALIVE_S = 75
"""Agents think, and tools run, between two requests of one connection."""


class Proxy:
    """Stand between unmodified agents and a policy, and record every turn token by token.

    Agents speak OpenAI's chat completions, OpenAI's responses or Anthropic's messages with it. Each session has an API
    key of its own and becomes an `Episode` of the store.

    Args:
        policy: Where turns come from: a policy or its name, such as `"vllm:http://127.0.0.1:8000"`.
        chat: Tokenizer and template of the policy's model.
        store: Where episodes go; stays open.
        host: The address to listen on; others than loopback need an `admin_key`.
        port: The port; 0 takes a free one.
        mode: `tokens` makes contexts of ids that go on; `engine` lets a vLLM server render, for what no chat format
            makes ids of, such as images: then only chat completions are served.
        admin_key: What `/admin` asks for; a new one without it.
        any_key: A key that nobody minted opens a session of its own; on loopback only.
        sampling: Parameters where a client sets none.
        limits: How much is taken on.
        source: The name that scores carry.

    Raises:
        ConfigError: The address needs a key, or cannot be listened on.
        MissingExtra: The server's packages are not installed.
    """

    def __init__(
        self,
        policy: str | Policy | Callable[..., Any],
        chat: ChatFormat,
        store: TraceStore,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        mode: Literal["tokens", "engine"] = "tokens",
        admin_key: str | None = None,
        any_key: bool = False,
        sampling: Sampling | None = None,
        limits: Limits | None = None,
        source: str = "",
    ) -> None:
        loopback = is_loopback(host)
        if not loopback and (any_key or not admin_key):
            got = f"host {host} {'where any key opens a session' if any_key else 'without a key'}"
            fix = "set an admin key and mint sessions, or listen on 127.0.0.1"
            raise ConfigError("a proxy that others can reach needs keys", where="proxy", got=got, fix=fix)
        self.admin_key = admin_key or secrets.token_urlsafe(24)
        """What `/admin` asks for."""
        self._store = store
        self._limits = limits or Limits()
        self._policy = load_policy(policy, chat)
        settings = Settings(
            policy=self._policy,
            chat=chat,
            store=store,
            source=source or store.meta.source,
            admin_key=self.admin_key,
            guard_metrics=not loopback,
            any_key=any_key,
            sampling=sampling or Sampling(max_tokens=4096),
            limits=self._limits,
            engine_renders=mode == "engine",
        )
        self._app = Application(settings)
        self._socket = listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        """Where it listens; what Anthropic's clients take. OpenAI's take `openai_url`."""
        config = uvicorn.Config(
            self._app.asgi,
            interface="asgi3",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self._limits.drain_s),
        )
        self._server = Server(config, self._app)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def openai_url(self) -> str:
        """Where OpenAI's clients find it."""
        return f"{self.url}/v1"

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve in this thread until `close`, SIGINT or SIGTERM; then answers that were begun are ended first.

        Args:
            ready: Is called once sessions can be opened.
        """
        run_in_loop = getattr(self._policy, "run_in_loop", _run)
        with self._server.capture_signals():  # in this thread, whichever one the loop runs in
            run_in_loop(self._serve(ready))

    def __enter__(self) -> Self:
        up = threading.Event()
        self._thread = threading.Thread(target=self.run, args=(up.set,), name="proxy", daemon=True)
        self._thread.start()
        while not up.wait(0.05):
            if not self._thread.is_alive():
                raise ConfigError("the proxy did not start", where="proxy", fix="see the log above")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take no more requests, end the answers that were begun, write all turns, and stop."""
        self._app.turns.draining = True
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        elif self._loop is None:
            self._socket.close()  # it never ran

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._app.ready = ready
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._loop = None  # the loop may be the policy's, and go on

    def open(self, task: str = "", **head: Any) -> "ProxySession":
        """Open a session; `ProxySession.end` ends it.

        Args:
            task: What its agent is to do.
            head: More fields of the episode's head: `group_id`, `replica`, `seed`, `role`; or `parent`, the id of the
                session whose agent opens this one.

        Raises:
            TooMany: There is no room for it.
            ConfigError: The proxy does not run.
        """

        async def mint() -> tuple[Session, str]:
            return self._app.sessions.mint(task=task, **head)

        session, key = self._call(mint())
        return ProxySession(self, session, key)

    @contextlib.contextmanager
    def session(self, task: str = "", **head: Any) -> Iterator["ProxySession"]:
        """Open a session for the block; it ends as `done`, or as `failed` where the block raises.

        Args:
            task: See `open`.
            head: See `open`.
        """
        session = self.open(task, **head)
        try:
            yield session
        except BaseException as error:
            with contextlib.suppress(TraceError):  # the first error is the one to see
                session.end("failed", failure=Failure("client", type(error).__name__, str(error)))
            raise
        session.end()

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None:
            coroutine.close()
            raise ConfigError("the proxy does not run", where="proxy", fix="with Proxy(...) as proxy: ...")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(coroutine)


@dataclass(frozen=True, slots=True, eq=False)
class ProxySession:
    """Hold what an agent needs to be recorded, and what is said of it.

    Args:
        proxy: Whose session it is.
        session: The session; used from the proxy's loop alone.
        key: The API key.
    """

    proxy: Proxy
    session: Session
    key: str = field(repr=False)

    @property
    def id(self) -> str:
        """Id of the episode."""
        return self.session.head.id

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which the SDKs of OpenAI and Anthropic find the proxy, for an agent in a process."""
        return {
            "OPENAI_BASE_URL": self.proxy.openai_url,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.proxy.url,
            "ANTHROPIC_API_KEY": self.key,
        }

    def child(self, task: str = "", **head: Any) -> "ProxySession":
        """Open a session for an agent that this one's opened; its episode is a child of this one's."""
        return self.proxy.open(task or self.session.head.task, parent=self.id, **head)

    def reward(self, value: float) -> None:
        """Add a reward to the newest turn that the agent used.

        Raises:
            ResetNeeded: There is none, or the session has ended.
        """

        async def reward() -> None:
            self.session.reward(value)

        self.proxy._call(reward())

    def note(self, **metadata: Any) -> None:
        """Keep small JSON-able facts beside the turns.

        Raises:
            ResetNeeded: The session has ended.
        """

        async def note() -> None:
            self.session.note(**metadata)

        self.proxy._call(note())

    def end(self, status: Status = "done", *, success: bool | None = None, failure: Failure | None = None) -> Episode:
        """End the session and return its episode; a second call only returns it.

        Args:
            status: `done`, `failed` or `abandoned`.
            success: The verdict, where there is one.
            failure: What failed, where the status is `failed`.

        Raises:
            ConfigError: An episode cannot end so.
            ResetNeeded: The session was abandoned before, and cannot end otherwise.
            TraceError: The store did not take all of it; the episode has failed.
        """
        app = self.proxy._app

        async def end() -> None:
            if self.session.closing is None:
                app.sessions.end(self.session, status, success, failure)
            elif self.session.closing[0] == "abandoned" and (status, success) != ("abandoned", None):
                fix = "end a session before its limit idle_s, or raise that"
                raise ResetNeeded("the session was abandoned before", where=f"session {self.id}", fix=fix)
            await self.session.ended.wait()
            await app.journal.drain()

        self.proxy._call(end())
        if self.session.broken is not None:
            raise TraceError(
                "the session's trace is not whole", where=f"session {self.id}", got=str(self.session.broken)
            ) from self.session.broken
        return self.proxy._store.episode(self.id)

    @property
    def episode(self) -> Episode:
        """The episode as it stands in the store; whole once the session has ended."""
        return self.proxy._store.episode(self.id)
