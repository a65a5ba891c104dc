"""Errors as OpenAI's endpoints write them."""

from collections.abc import Sequence
from typing import Any, Final

from agentgym_tok.proxy.wire.reply import json_bytes

__all__ = ["error_body", "error_document"]

_TYPES: Final = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "not_found"),
    408: ("timeout_error", None),
    409: ("conflict_error", None),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def error_document(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the error of a status, as a document."""
    kind, code = _TYPES.get(status, ("invalid_request_error" if status < 500 else "server_error", None))
    return {"message": message, "type": kind, "param": param, "code": code}


def error_body(status: int, message: str, param: str | None = None, drift: Sequence[str] = ()) -> bytes:
    """Write the body of an answer that is an error.

    Args:
        status: Of the answer; SDKs choose their exception by it, and try again at 408, 409, 429 and from 500 on.
        message: What is wrong, for people.
        param: The field that is wrong.
        drift: What is wrong with the engine's ids, in names that only this library has.
    """
    return json_bytes({"error": error_document(status, message, param), **({"drift": drift} if drift else {})})
