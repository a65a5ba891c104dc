"""A bare pass-through proxy: what any proxy of this kind costs at least, written with the same libraries as ours."""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

__all__ = ["serve"]


def serve(upstream: str, port: int) -> None:
    """Pass chat completions on to another server.

    Args:
        upstream: Its address.
        port: To listen on.
    """
    sessions: list[aiohttp.ClientSession] = []

    async def forward(request: Request) -> Response:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body, headers = await request.body(), {"content-type": "application/json"}
        answer = await sessions[0].post(upstream + request.url.path, data=body, headers=headers)
        if not answer.content_type.startswith("text/event-stream"):
            return Response(await answer.read(), answer.status, media_type=answer.content_type)

        async def pieces() -> AsyncIterator[bytes]:
            async with answer:
                async for piece in answer.content.iter_any():
                    yield piece

        return StreamingResponse(pieces(), answer.status, media_type=answer.content_type)

    app = Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])])
    uvicorn.run(app, host="localhost", port=port, log_level="error", timeout_keep_alive=75)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
