"""A proxy in front of a scripted policy, and clients of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from agentgym_tok import ChatFormat
from agentgym_tok.policies import BasePolicy
from agentgym_tok.proxy import Proxy, ProxySession, contexts
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, TraceStore, Turn, verify
from agentgym_tok.types import Completion, Delta, Message, Request

CHAT = ChatFormat.builtin()
CHAT_PATH, RESPONSES_PATH, MESSAGES_PATH = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@dataclass(eq=False)
class Scripted(BasePolicy):
    """Say what a script says, an id at a time.

    Args:
        say: Gets the request and how many came before it; returns a turn's text or ids, or raises.
        pace_s: Seconds between two ids.
    """

    say: Callable[[Request, int], str | Sequence[int]]
    pace_s: float = 0.0
    name: str = "scripted"
    asked: list[Request] = field(default_factory=list)
    broken_off: list[float] = field(default_factory=list)

    async def complete(self, request: Request) -> Completion:
        completion = None
        async for delta in self.stream(request):
            completion = delta.completion
        assert completion is not None
        return completion

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        number = len(self.asked)
        self.asked.append(request)
        said = self.say(request, number)
        ids_T = CHAT.encode_turn(said) if isinstance(said, str) else as_ids(said)
        ids_T = ids_T[: request.sampling.max_tokens]
        try:
            for place in range(len(ids_T)):
                await asyncio.sleep(self.pace_s)
                yield Delta(ids_T[place : place + 1], None)
        except (asyncio.CancelledError, GeneratorExit):
            self.broken_off.append(time.monotonic())
            raise
        stopped = len(ids_T) and int(ids_T[-1]) in CHAT.stop_ids
        finish = "stop" if stopped else "length"
        logprobs_T = [-0.5] * len(ids_T)
        turn = Completion(ids_T, logprobs_T, finish, logprobs="raw", engine="scripted", sampling=request.sampling)  # type: ignore[arg-type]
        yield Delta(as_ids([]), None, turn)


class Client:
    """Speak plain HTTP with a proxy, as a session's agent."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30)

    def ask(self, messages: list[dict[str, Any]], *, headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Return the answer to a conversation, as chat completions have it."""
        response = self.http.post(CHAT_PATH, json={"model": "m", "messages": messages, **body}, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()

    def say(self, messages: list[dict[str, Any]], text: str, **body: Any) -> dict[str, Any]:
        """Say something, append that and the answer to the conversation, and return the answer's message."""
        messages.append({"role": "user", "content": text})
        message: dict[str, Any] = self.ask(messages, **body)["choices"][0]["message"]
        messages.append({name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)})
        return message


@dataclass
class Proxied:
    """Hold a running proxy, one session of it, and its client."""

    proxy: Proxy
    store: TraceStore
    policy: Any
    session: ProxySession
    open: ExitStack

    def __post_init__(self) -> None:
        self.client = self.agent(self.session)

    def agent(self, session: ProxySession) -> Client:
        """Return a client of a session."""
        client = Client(self.proxy.url, session.key)
        self.open.callback(client.http.close)
        return client

    def end(self, **how: Any) -> Episode:
        """End the session, prove its trace, and return its episode."""
        episode = self.session.end(**how)
        found = verify(self.store.run, CHAT)
        assert not found.breaches, found.breaches
        assert all(accounting.complete for accounting in found.accounting)
        return episode


@contextmanager
def proxied(run: Path, policy: Any, **options: Any) -> Iterator[Proxied]:
    """Put a proxy in front of a policy, or of what a script says."""
    if not isinstance(policy, BasePolicy):
        policy = Scripted(policy)
    with ExitStack() as stack:
        store = stack.enter_context(TraceStore(run, chat=CHAT))
        proxy = stack.enter_context(Proxy(policy, CHAT, store, **options))
        yield Proxied(proxy, store, policy, proxy.open("task"), stack)


def until(holds: Callable[[], object], timeout_s: float = 10.0) -> bool:
    """Wait until something holds; false where it never does."""
    end = time.monotonic() + timeout_s
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(found)


def used(episode: Episode) -> list[Turn]:
    """Return the turns that the client used."""
    return [turn for turn in episode.turns if turn.used]


def same_answer(told: Message, back: Message) -> bool:
    """Tell whether a message that comes back counts as the answer that was told."""
    reasonings = [contexts._reasonings([one]) for one in (back, told)]
    return contexts._meaning(told) == contexts._meaning(back) and contexts._fits(*reasonings)
