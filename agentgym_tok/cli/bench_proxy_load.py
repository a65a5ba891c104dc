"""Load for a gateway: conversations that grow turn by turn, over plain sockets, so that the client costs little."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Conversation", "Load", "Times", "closed_loop", "open_loop", "soak"]

_WORDS = "lorem ipsum dolor sit amet consectetur "
_TURNS = 8


@dataclass(slots=True)
class Load:
    """Say where requests go and what they are like.

    Args:
        port: On this machine.
        key: Of all requests; with `own_keys` the beginning of each conversation's own.
        words: In the first message.
        stream: Answers come piece by piece.
        own_keys: Each conversation has a key of its own.
    """

    port: int
    key: str
    words: int = 300
    stream: bool = True
    own_keys: bool = True
    conversations: int = 0


@dataclass(slots=True)
class Times:
    """Hold what requests took.

    Args:
        total_s: Seconds until the last byte, of each request.
        first_s: Seconds until the first byte of the answer.
        failed: Answers with another status than 200.
        wall_s: Seconds of the whole run.
    """

    total_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    failed: int = 0
    wall_s: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.total_s) / self.wall_s

    def percentiles(self) -> dict[str, float]:
        """Return the 50th and 99th percentile of both, in milliseconds."""
        named = {"total": self.total_s, "first": self.first_s}
        wanted = [(name, times, at) for name, times in named.items() for at in (50, 99)]
        return {f"{name} p{at}, ms": 1e3 * float(np.percentile(times, at)) for name, times, at in wanted}


class _Connection:
    """Speak HTTP/1.1 on one socket, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "_Connection":
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection("localhost", port, limit=1 << 22))

    async def post(self, path: str, key: str, body: Mapping[str, Any]) -> tuple[int, float, bytes]:
        """Return the status, the time of the first byte of the body, and the body."""
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer[9:12])
        if b"transfer-encoding: chunked" in answer:
            return status, *await self._chunks()
        _, found, rest = answer.partition(b"content-length:")
        length = int(rest.partition(b"\r\n")[0]) if found else 0
        content = await self._reader.readexactly(length)
        return status, time.perf_counter(), content

    async def _chunks(self) -> tuple[float, bytes]:
        first, pieces = 0.0, list[bytes]()
        while size := int(await self._reader.readline(), 16):
            pieces.append((await self._reader.readexactly(size + 2))[:-2])
            first = first or time.perf_counter()
        await self._reader.readexactly(2)
        return first, b"".join(pieces)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class Conversation:
    """Hold one agent's messages.

    Args:
        load: What its requests are like.
        key: Its key.
        marker: Stands in its first message.
    """

    def __init__(self, load: Load, key: str, marker: str) -> None:
        self.key = key
        self.answers: list[str] = []
        self._load = load
        text = f"You are agent {marker}. " + _WORDS * (load.words // 6)
        self._messages: list[dict[str, str]] = [{"role": "system", "content": text}]

    async def turn(self, connection: _Connection, times: Times) -> bool:
        """Ask for the next turn; false where it failed."""
        self._messages.append({"role": "user", "content": f"turn {len(self.answers)} {_WORDS * 5}"})
        body = {"model": "tiny", "messages": self._messages, "stream": self._load.stream, "max_tokens": 64}
        start = time.perf_counter()
        status, first, content = await connection.post("/v1/chat/completions", self.key, body)
        times.total_s.append(time.perf_counter() - start)
        times.first_s.append(first - start)
        if status != 200:
            times.failed += 1
            return False
        self.answers.append(_text(content, stream=self._load.stream))
        self._messages.append({"role": "assistant", "content": self.answers[-1]})
        return True

    @property
    def over(self) -> bool:
        """It has had all its turns."""
        return len(self.answers) >= _TURNS


def _conversation(load: Load) -> Conversation:
    load.conversations += 1
    key = f"{load.key}-{load.conversations}" if load.own_keys else load.key
    return Conversation(load, key, str(load.conversations))


def _text(content: bytes, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(content)["choices"][0]["message"]["content"])
    pieces = (json.loads(line[6:]) for line in content.split(b"\n\n") if line.startswith(b"data: {"))
    return "".join(choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"])


async def closed_loop(load: Load, clients: int, seconds: float) -> Times:
    """Let clients ask as fast as they are answered.

    Args:
        load: What is asked.
        clients: At the same time.
        seconds: For so long.
    """
    times, start = Times(), time.perf_counter()

    async def client() -> None:
        connection = await _Connection.open(load.port)
        while time.perf_counter() < start + seconds:
            conversation = _conversation(load)
            while not conversation.over and time.perf_counter() < start + seconds:
                if not await conversation.turn(connection, times):
                    break
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    times.wall_s = time.perf_counter() - start
    return times


async def open_loop(load: Load, rate: float, seconds: float) -> Times:
    """Ask at a rate, whether there are answers or not.

    Args:
        load: What is asked.
        rate: Requests a second.
        seconds: For so long.
    """
    times, start = Times(), time.perf_counter()
    connections: list[_Connection] = []
    waiting: list[Conversation] = []

    async def ask() -> None:
        connection = connections.pop() if connections else await _Connection.open(load.port)
        conversation = waiting.pop() if waiting else _conversation(load)
        if await conversation.turn(connection, times) and not conversation.over:
            waiting.append(conversation)
        connections.append(connection)

    asked: list[asyncio.Task[None]] = []
    while time.perf_counter() < start + seconds:
        asked.append(asyncio.create_task(ask()))
        await asyncio.sleep(max(0.0, start + len(asked) / rate - time.perf_counter()))
    await asyncio.gather(*asked)
    times.wall_s = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return times


async def soak(load: Load, clients: int, seconds: float) -> tuple[Times, dict[str, Sequence[str]]]:
    """Let clients open sessions, have conversations in them, and end them.

    Args:
        load: What is asked; its key is the admin's.
        clients: At the same time.
        seconds: New conversations begin for so long.

    Returns:
        What they took, and the answers of each session, by its id.
    """
    times, start, told = Times(), time.perf_counter(), dict[str, Sequence[str]]()

    async def client(number: int) -> None:
        connection = await _Connection.open(load.port)
        turn = 0
        while time.perf_counter() < start + seconds:
            task = f"{number}-{turn}"
            turn += 1
            _, _, made = await connection.post("/admin/sessions", load.key, {"task": task})
            session = json.loads(made)
            conversation = Conversation(load, session["key"], task)
            while not conversation.over and await conversation.turn(connection, times):
                pass
            await connection.post(f"/admin/sessions/{session['id']}/end", load.key, {})
            told[session["id"]] = conversation.answers
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    times.wall_s = time.perf_counter() - start
    return times, told
