"""An engine that costs next to nothing: it answers every prompt with one turn, at once or at a pace."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from agentgym_tok.chat import ChatFormat

__all__ = ["serve"]

_GENERATE, _CHAT, _MODELS = b"/inference/v1/generate", b"/v1/chat/completions", b"/v1/models"


class _Engine(asyncio.Protocol):
    """Read requests off one connection and answer them in turn; the answers are made beforehand."""

    def __init__(self, answers: "_Answers") -> None:
        self._answers = answers
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's own
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 : lower.find(b"\r\n", at) if b"\r\n" in lower[at:] else None]) if at >= 0 else 0
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        path = head.split(b" ", 2)[1]
        self._task = asyncio.get_running_loop().create_task(self._answer(path, body))

    async def _answer(self, path: bytes, body: bytes) -> None:
        answers = self._answers
        if path == _MODELS:
            return self._whole(answers.models)
        if path not in {_GENERATE, _CHAT}:
            return self._whole(b"{}", b"404 Not Found")
        # Only what costs time is read of a body: where the prompt ends, and whether the answer is a stream.
        prompt = body.count(b",", body.find(b'"token_ids"'), body.find(b"]", body.find(b'"token_ids"'))) + 1
        if b'"stream":true' not in body and b'"stream": true' not in body:
            if answers.pace_s:
                await asyncio.sleep(answers.pace_s * answers.tokens)
            # A policy asks for one token first, to see what the endpoint tells.
            return self._whole(answers.whole(path, prompt, probe=b'"max_tokens":1,' in body.replace(b" ", b"")))
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        start = loop.time()
        for place in range(answers.tokens):
            if answers.pace_s:
                # To the clock: sixteen waits that each end late would be longer the busier this core is.
                await asyncio.sleep(start + (place + 1) * answers.pace_s - loop.time())
            self._chunk(b"data: " + answers.piece(path, place, prompt) + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self._transport.write(b"0\r\n\r\n")
        return None

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _whole(self, body: bytes, status: bytes = b"200 OK") -> None:
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self._transport.write(head + body)


class _Answers:
    """Hold what the engine answers.

    Args:
        chat: Of the model.
        tokens: In each turn.
        pace_s: Seconds between two of them.
    """

    def __init__(self, chat: ChatFormat, tokens: int, pace_s: float) -> None:
        self.pace_s = pace_s
        ids = [*chat.encode("one two three four five six seven eight nine ten " * tokens).tolist()[: tokens - 1]]
        self._ids = [*ids, chat.stop_ids[0]]
        self._texts = [chat.token_text(index) for index in ids] + [""]
        self.tokens = tokens
        self.models = json.dumps({"object": "list", "data": [{"id": "tiny", "object": "model"}]}).encode()
        places = range(tokens)
        self._pieces = {path: [self._make(path, at, at + 1) for at in places] for path in (_GENERATE, _CHAT)}
        self._wholes = {path: self._make(path, 0, tokens) for path in (_GENERATE, _CHAT)}

    def whole(self, path: bytes, prompt: int, *, probe: bool) -> bytes:
        """Return the whole answer, or its last token alone."""
        made = self._pieces[path][-1] if probe else self._wholes[path]
        return self._counted(made, prompt, 1 if probe else self.tokens)

    def piece(self, path: bytes, place: int, prompt: int) -> bytes:
        """Return one token of it."""
        return self._counted(self._pieces[path][place], prompt, place + 1)

    def _counted(self, made: bytes, prompt: int, drawn: int) -> bytes:
        usage = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}'
        return made[:-1] + usage % (prompt, drawn, prompt + drawn)

    def _make(self, path: bytes, start: int, end: int) -> bytes:
        whole, last = start == 0 and end == self.tokens, end == self.tokens
        ids, text = self._ids[start:end], "".join(self._texts[start:end])
        finish = "stop" if last else None
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        document: Mapping[str, Any]
        if path == _GENERATE:
            entries = [{"token": f"token_id:{index}", "logprob": -0.5} for index in ids]
            choice |= {"token_ids": ids, "logprobs": {"content": entries}}
            document = {"request_id": "1", "prompt_token_ids": None}
        else:
            choice |= {"message" if whole else "delta": {"role": "assistant", "content": text}}
            kind = "chat.completion" if whole else "chat.completion.chunk"
            document = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "tiny"}
        return json.dumps({**document, "choices": [choice]}).encode()


async def serve(tokens: int, pace_s: float, port: int) -> None:
    """Serve until the process is ended; says where, on a line.

    Args:
        tokens: In each turn.
        pace_s: Seconds between two of them.
        port: To listen on; 0 takes a free one.
    """
    answers = _Answers(ChatFormat.builtin(), tokens, pace_s)
    server = await asyncio.get_running_loop().create_server(lambda: _Engine(answers), "localhost", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
