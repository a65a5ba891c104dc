"""A vLLM server made of seeds: the shapes that were recorded of a real one, and every known way to fail."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from agentgym_tok import ChatFormat
from agentgym_tok.tokens import as_ids

GENERATE, COMPLETIONS, CHAT = "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"
COMMANDS = ("look", "inventory", "go to shelf 1", "take mug 1 from desk 1", "open drawer 2", "不 café 🍵")

FAILURES = {
    "500": (500, '{"error": {"message": "EngineDeadError"}}', {}),
    "429": (429, '{"error": {"message": "slow down"}}', {"Retry-After": "0"}),
    "busy": (429, '{"error": {"message": "come back tomorrow"}}', {"Retry-After": "86400"}),
    "400": (400, '{"error": {"message": "no such parameter; your key is k-secret"}}', {}),
    "html": (200, "<html>gateway</html>", {}),
}
SWAPPED: dict[str, dict[str, Any]] = {"shape": {"hello": 1}, "error": {"error": {"message": "lost"}}}
TWISTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "sentinel": lambda said: {"logprobs": [*said["logprobs"][:-1], -9999.0]},
    "no_logprobs": lambda said: {"logprobs": None},
    "wrong_prompt": lambda said: {"prompt": [*said["prompt"][:-1], said["prompt"][-1] + 1]},
    "longer_prompt": lambda said: {"prompt": [1, *said["prompt"]]},
    "stop_lost": lambda said: {name: said[name][:-1] for name in ("ids", "logprobs", "named")},
    "control_lost": lambda said: {"ids": said["ids"][1:], "drawn": said["drawn"] - 1},
    "no_finish": lambda said: {"finish": None},
    "odd_finish": lambda said: {"finish": "content_filter"},
    "bad_versions": lambda said: {"versions": [{"version": "a", "start": 3, "end": 10**6}]},
    "foreign_id": lambda said: {name: [*said["ids"][:-1], 10**6] for name in ("ids", "named")},
}
TRANSIENT = ("500", "429", "reset", "html", "shape", "error", "no_finish")
"""Faults after which another attempt helps."""
HANGING = ("slow", "hang", "drip")
"""Faults that last longer than anybody waits: before the answer, in its middle, and with signs of life all along."""
FOREVER_S = 30


class FakeVLLM:
    """Draw each turn from the prompt and the seed alone; `fault(seed, attempt)` says how an answer goes wrong."""

    def __init__(self, chat: ChatFormat, paths: tuple[str, ...] = (GENERATE, COMPLETIONS, CHAT)) -> None:
        self.chat = chat
        self.paths = set(paths)
        self.models = {"tiny": 4096}
        self.fault: Callable[[int, int], str | None] = lambda seed, attempt: None
        self.asked: list[dict[str, Any]] = []
        self.tries: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()  # how often a seed's answer was sent to its end, right or wrong
        self.hung_up: list[int] = []
        self.processed = False
        self.headers: list[dict[str, str]] = []
        self.flying = self.most_flying = 0
        self.tokenizer_digit = 0
        self.url = ""

    # ---- what it draws

    def draw(self, prompt: list[int], params: dict[str, Any]) -> tuple[list[int], list[float], str]:
        """Return ids that no tokenizer would choose, one for each byte or so, their log-probabilities, and the end."""
        draw = np.random.default_rng([params["seed"], *prompt[-8:]])
        text = f"<action>{COMMANDS[int(draw.integers(len(COMMANDS)))]}</action>"
        ids = [index for sign in text for index in self.chat.encode(sign).tolist()]
        ids = [*ids, params["stop_token_ids"][0]][: params["max_tokens"]]
        ids, stopped = self.stopped(ids, params.get("stop", ()))
        logprobs = [-float(np.float32(value)) for value in draw.uniform(0.01, 3, size=len(ids))]
        if self.processed and params["top_k"] == 1:
            logprobs = [0.0] * len(ids)
        return ids, logprobs, "stop" if stopped or ids[-1] in params["stop_token_ids"] else "length"

    def stopped(self, ids: list[int], stop: Sequence[str]) -> tuple[list[int], bool]:
        """End a turn with the id that completes a stop string, which stays among the ids."""
        for end in range(1, len(ids) + 1):
            if any(one in self.chat.decode(as_ids(ids[:end])) for one in stop):
                return ids[:end], True
        return ids, False

    # ---- what it says

    def text(self, ids: list[int]) -> str:
        return self.chat.decode(as_ids([index for index in ids if index < self.chat.vocab_size]))

    def piece(
        self, path: str, said: dict[str, Any], start: int, end: int, *, first: bool, last: bool
    ) -> dict[str, Any]:
        ids, logprobs = said["ids"][start:end], said["logprobs"]
        choice: dict[str, Any] = {"index": 0, "token_ids": ids, "finish_reason": said["finish"] if last else None}
        out: dict[str, Any] = {"choices": [choice]}
        if said["no_ids"]:
            choice["token_ids"] = None
        names = [f"token_id:{index}" for index in said["named"][start:end]]
        nats = None if logprobs is None else logprobs[start:end]
        if path == COMPLETIONS:
            choice["text"] = self.text(ids)
            choice["logprobs"] = None if nats is None else {"tokens": names, "token_logprobs": nats, "text_offset": []}
            choice["prompt_token_ids"] = said["prompt"] if first else None
        else:
            entries = [{"token": name, "logprob": value} for name, value in zip(names, nats or [], strict=False)]
            choice["logprobs"] = None if nats is None else {"content": entries}
        if path == CHAT:
            choice["message"] = {"role": "assistant", "content": self.text(ids)}
            out["prompt_token_ids"] = said["prompt"] if first else None
        if path == GENERATE:
            out |= {"request_id": "generate-tokens-1", "prompt_token_ids": None, "output_mode": "tokens"}
            if last:
                choice["weight_versions"] = said["versions"]
        out["usage"] = {"prompt_tokens": len(said["prompt"]), "completion_tokens": min(end, said["drawn"])}
        return out

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        path = request.url.path
        self.headers.append(dict(request.headers))
        params = body["sampling_params"] if path == GENERATE else body
        if path not in self.paths:
            return JSONResponse({"error": {"message": "Not Found"}}, 404)
        if path == CHAT:
            prompt = self.chat.tokenize(body["messages"][0]["content"]).tolist()
        else:
            prompt = body["token_ids"] if path == GENERATE else body["prompt"]
        seed = params["seed"]
        fault = self.fault(seed, self.tries[seed])
        self.tries[seed] += 1
        self.asked.append({"path": path, "ids": prompt, **params})
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        try:
            await asyncio.sleep(FOREVER_S if fault == "slow" else 0)
            response = self.respond(path, prompt, params, fault, stream=bool(body.get("stream")))
        except asyncio.CancelledError:
            self.hung_up.append(seed)
            raise
        else:
            self.answered[seed] += response.status_code == 200 and not isinstance(response, StreamingResponse)
            return response
        finally:
            self.flying -= 1

    def respond(
        self, path: str, prompt: list[int], params: dict[str, Any], fault: str | None, *, stream: bool
    ) -> Response:
        if fault in FAILURES:
            status, text, headers = FAILURES[fault]
            return PlainTextResponse(text, status, headers, "text/event-stream" if stream else "application/json")
        ids, logprobs, finish = self.draw(prompt, params)
        half = max(1, len(ids) // 2)
        versions = [{"version": "a", "start": 0, "end": half}, {"version": "b", "start": half, "end": len(ids)}]
        said: dict[str, Any] = {"prompt": prompt, "named": ids, "drawn": len(ids), "no_ids": fault == "no_ids"}
        said |= {"ids": ids, "logprobs": logprobs, "finish": finish, "versions": versions[: 1 + (half < len(ids))]}
        if fault in TWISTS:
            said |= TWISTS[fault](said)
        if stream:
            return StreamingResponse(self.events(path, said, fault, params["seed"]), media_type="text/event-stream")
        document = SWAPPED.get(fault or "") or self.piece(path, said, 0, len(said["ids"]), first=True, last=True)
        text = json.dumps(document)
        if fault in BODIES:
            body = BODIES[fault](text, lambda: self.answered.update([params["seed"]]))
            return StreamingResponse(body, media_type="application/json")
        return Response(text, media_type="application/json")

    async def events(self, path: str, said: dict[str, Any], fault: str | None, seed: int) -> AsyncIterator[str]:
        length, step = len(said["ids"]), 3
        try:
            for start in range(0, length, step):
                end = min(start + step, length)
                document = self.piece(path, said, start, end, first=start == 0, last=end == length)
                if start >= length // 2:
                    if fault == "reset":
                        raise ConnectionResetError
                    if fault == "cut":
                        return
                    if fault == "hang":
                        await asyncio.sleep(FOREVER_S)
                    while fault == "drip":
                        yield ": still here\n\n"
                        await asyncio.sleep(0.05)
                    document = SWAPPED.get(fault or "", document)
                text = f"data: {json.dumps(document)}\n\n"
                for part in (text[:9], text[9:]) if fault == "trickle" else (text,):
                    await asyncio.sleep(0.005 if fault == "trickle" else 0)
                    yield part
                if fault == "twice" and start == step:
                    yield text
            usage = {"prompt_tokens": len(said["prompt"]), "completion_tokens": said["drawn"]}
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
            yield "data: [DONE]\n\n"
            self.answered[seed] += 1
        except asyncio.CancelledError:
            self.hung_up.append(seed)
            raise

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": name, "max_model_len": limit} for name, limit in self.models.items()]})

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": "0.32.0"})

    async def tokenize(self, request: Request) -> Response:
        ids = self.chat.tokenize(json.loads(await request.body())["prompt"]).tolist()
        return JSONResponse({"count": len(ids), "tokens": [index + self.tokenizer_digit for index in ids]})

    def app(self) -> Starlette:
        posts = [Route(path, self.answer, methods=["POST"]) for path in (GENERATE, COMPLETIONS, CHAT)]
        gets = [Route("/v1/models", self.list_models), Route("/version", self.version)]
        return Starlette(routes=[*posts, *gets, Route("/tokenize", self.tokenize, methods=["POST"])])


async def _broken(text: str, _: Callable[[], None]) -> AsyncIterator[str]:
    yield text[: len(text) // 2]
    raise ConnectionResetError


async def _cut(text: str, _: Callable[[], None]) -> AsyncIterator[str]:
    yield text[: len(text) // 2]


async def _hang(text: str, _: Callable[[], None]) -> AsyncIterator[str]:
    yield text[: len(text) // 2]
    await asyncio.sleep(FOREVER_S)


async def _drip(_: str, __: Callable[[], None]) -> AsyncIterator[str]:
    for _blank in range(20 * FOREVER_S):
        yield " "  # JSON may begin with any number of them
        await asyncio.sleep(0.05)


async def _trickle(text: str, sent: Callable[[], None]) -> AsyncIterator[str]:
    for start in range(0, len(text), 50):
        yield text[start : start + 50]
        await asyncio.sleep(0.001)
    sent()


BODIES = {"reset": _broken, "cut": _cut, "hang": _hang, "drip": _drip, "trickle": _trickle}
"""How an answer that is no stream comes in pieces, and where it ends."""
