"""Sessions by API: minted, rewarded, described and ended by whoever holds the admin key."""

import hmac
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pydantic import Field, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym_tok.config import Config
from agentgym_tok.errors import AgentGymTokError, UnknownName
from agentgym_tok.proxy.answering import Refused
from agentgym_tok.proxy.requests import key_of, read_body
from agentgym_tok.proxy.sessions import Sessions, TooMany
from agentgym_tok.trace import Failure, Status

__all__ = ["admin_routes", "guarded"]

_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_MOST_BYTES = 1 << 20


class _Mint(Config):
    task: str = ""
    group_id: str = ""
    replica: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0)
    role: str = "agent"
    parent: str | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class _Reward(Config):
    reward: float = Field(allow_inf_nan=False)


class _Notes(Config):
    metadata: dict[str, JsonValue]


class _End(Config):
    status: Status = "done"
    success: bool | None = None
    failure: str = Field(default="", description="what failed in the client, where the status is failed")


def admin_routes(sessions: Sessions, key: str) -> list[Route]:
    """Return the routes.

    Args:
        sessions: The proxy's.
        key: What requests must bear.
    """
    admin = _Admin(sessions)
    made = [
        ("/admin/sessions", admin.mint, "POST"),
        ("/admin/sessions/{id}", admin.show, "GET"),
        ("/admin/sessions/{id}/reward", admin.reward, "POST"),
        ("/admin/sessions/{id}/metadata", admin.note, "POST"),
        ("/admin/sessions/{id}/end", admin.end, "POST"),
    ]
    return [Route(path, guarded(_told(endpoint), key), methods=[method]) for path, endpoint, method in made]


def guarded(endpoint: _Endpoint, key: str) -> _Endpoint:
    """Let only those in who bear a key, which is compared in a time that says nothing of it."""
    expected = key.encode()

    async def guard(request: Request) -> Response:
        given = key_of(request.headers).encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, expected):
            return _error(401, "this needs the admin key", {"www-authenticate": "Bearer"})
        return await endpoint(request)

    return guard


def _told(endpoint: _Endpoint) -> _Endpoint:
    async def tell(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            return _error(400, ": ".join([".".join(map(str, first["loc"])) or "body", first["msg"]]))
        except Refused as refused:
            return _error(refused.status, refused.message)
        except UnknownName as error:
            return _error(404, str(error))
        except TooMany as error:
            return _error(429, str(error), {"retry-after": "1"})
        except AgentGymTokError as error:
            return _error(409, str(error))

    return tell


class _Admin:
    """Answer the admin's requests."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def mint(self, request: Request) -> Response:
        asked = _Mint.model_validate_json(await _body(request) or b"{}")
        session, key = self._sessions.mint(**asked.model_dump(exclude={"metadata"}))
        session.note(**asked.metadata)
        base = f"{request.url.scheme}://{request.url.netloc}"
        urls = {"openai_base_url": f"{base}/v1", "anthropic_base_url": base}
        return JSONResponse({"id": session.head.id, "key": key, **urls}, 201)

    async def show(self, request: Request) -> Response:
        session = self._sessions.by_id(request.path_params["id"])
        head, drawing = session.head, len(session.drawing)
        return JSONResponse({"id": head.id, "task": head.task, "turns": session.turns, "drawing": drawing})

    async def reward(self, request: Request) -> Response:
        asked = _Reward.model_validate_json(await _body(request))
        self._sessions.by_id(request.path_params["id"]).reward(asked.reward)
        return Response(status_code=204)

    async def note(self, request: Request) -> Response:
        asked = _Notes.model_validate_json(await _body(request))
        self._sessions.by_id(request.path_params["id"]).note(**asked.metadata)
        return Response(status_code=204)

    async def end(self, request: Request) -> Response:
        asked = _End.model_validate_json(await _body(request) or b"{}")
        session = self._sessions.by_id(request.path_params["id"])
        failed = asked.status == "failed"
        if asked.status == "running" or (asked.failure and not failed):
            return _error(400, "status: done or abandoned, or failed with its failure")
        failure = Failure("client", "Failed", asked.failure) if failed else None
        self._sessions.end(session, asked.status, asked.success, failure)
        return Response(status_code=204)


async def _body(request: Request) -> bytes:
    return await read_body(request.headers, request.receive, _MOST_BYTES)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers)
