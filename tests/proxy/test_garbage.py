"""Requests leave nothing behind that only the collector of cycles could find, so that it need not look often."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from proxying import CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH, Proxied, until

from agentgym_tok.errors import PolicyError

_OURS = "agentgym_tok"
_REQUESTS = 3
_FOREIGN = 40
"""So many objects of others are nobody's business, for each request."""
CALL = '<tool_call>{"name": "look", "arguments": {"at": "the sky"}}</tool_call>'
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@contextmanager
def _collected() -> Iterator[list[Any]]:
    """Yield what is filled with all that the collector finds at the end of the block."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(thing: Any) -> bool:
    for name in ("f_code", "cr_code", "ag_code"):
        if hasattr(thing, name):
            return f"/{_OURS}/" in getattr(thing, name).co_filename
    module = getattr(thing, "__module__", None) if callable(thing) else type(thing).__module__
    return str(module or "").startswith(_OURS)


def _body(path: str, text: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    asked = {"input": said} if path == RESPONSES_PATH else {"messages": said, "max_tokens": 64}
    return {"model": "m", **asked, **more}


def _send(at: Proxied, path: str, status: int = 200, **more: Any) -> None:
    """Ask, each time in a session of its own, which then ends."""
    for number in range(_REQUESTS):
        session = at.proxy.open(f"task {number}")
        headers = {"authorization": f"Bearer {session.key}"}
        answer = at.client.http.post(path, json=_body(path, f"hello {number}", **more), headers=headers)
        assert answer.status_code == status, answer.text
        session.end()


def _abort(at: Proxied, path: str) -> None:
    """Hang up in the middle of streams."""
    for number in range(_REQUESTS):
        session = at.proxy.open(f"task {number}")
        headers = {"authorization": f"Bearer {session.key}"}
        body = _body(path, "say much", stream=True)
        with at.client.http.stream("POST", path, json=body, headers=headers) as answer:
            next(answer.iter_bytes())
        assert until(lambda session=session: not session.session.drawing)
        session.end()


def _say(request: Any, number: int) -> str:
    asked = str(request.sampling.top_k)
    if asked == "7":
        raise PolicyError("there is nothing to say", where="test")
    return CALL if asked == "8" else "well then, " * 4


CASES = [
    *(
        (path, 200, {"stream": stream})
        for path in (CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH)
        for stream in (True, False)
    ),
    *((CHAT_PATH, 200, {"stream": stream, "n": 2}) for stream in (True, False)),
    *((CHAT_PATH, 200, {"stream": stream, "tools": [LOOK], "top_k": 8}) for stream in (True, False)),
    *((CHAT_PATH, 502, {"stream": stream, "n": n, "top_k": 7}) for stream in (True, False) for n in (1, 2)),
    (CHAT_PATH, 400, {"temperature": 1000}),
]


@pytest.mark.parametrize(("path", "status", "more"), CASES)
def test_requests_leave_nothing_of_ours_to_the_collector(
    proxied: Callable[..., Any], path: str, status: int, more: dict[str, Any]
) -> None:
    with proxied(_say) as at:
        _check(lambda: _send(at, path, status, **more))


@pytest.mark.parametrize("path", [CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH])
def test_streams_that_are_broken_off_leave_nothing_of_ours_to_the_collector(
    proxied: Callable[..., Any], path: str
) -> None:
    with proxied(_say) as at:
        at.policy.pace_s = 0.01
        _check(lambda: _abort(at, path))


def _check(ask: Callable[[], None]) -> None:
    ask()  # what is made once
    with _collected() as found:
        ask()
        time.sleep(0.1)  # the server lets go of its own a moment later
    assert [type(thing).__qualname__ for thing in found if _is_ours(thing)] == []
    assert len(found) <= _REQUESTS * _FOREIGN
