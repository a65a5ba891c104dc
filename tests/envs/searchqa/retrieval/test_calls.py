"""Calls are retried a little, end in time, and leave a server that fails alone."""

import time
from collections.abc import Callable

import pytest

from agentgym_tok.envs.searchqa.retrieval import calls
from agentgym_tok.envs.searchqa.retrieval.calls import Caller, Passing
from agentgym_tok.errors import WorldError


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def failing(times: int, wait_s: float = 0.0) -> Callable[[float], str]:
    left = [times]

    def once(_until: float) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise Passing("status 500", wait_s)
        return "fine"

    return once


def test_what_passes_is_tried_again_after_growing_random_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.random, "uniform", lambda least, most: most)
    assert Caller("here", attempts=4, deadline_s=30, wait_s=0.5).call(failing(3)) == "fine"
    assert clock.slept == [0.5, 1.0, 2.0]


def test_the_wait_is_never_shorter_than_the_server_asks(clock: Clock) -> None:
    Caller("here", attempts=2, deadline_s=30).call(failing(1, wait_s=7))
    assert clock.slept == [7]


def test_attempts_and_the_deadline_are_bounds(clock: Clock) -> None:
    with pytest.raises(WorldError, match=r"where: here; got: status 500 \(attempt 2\)"):
        Caller("here", attempts=2, deadline_s=30).call(failing(9))
    with pytest.raises(WorldError, match=r"attempt 1"):
        Caller("here", attempts=9, deadline_s=30).call(failing(9, wait_s=31))
    assert len(clock.slept) == 1


def test_what_does_not_pass_is_not_tried_again(clock: Clock) -> None:
    def once(_until: float) -> str:
        raise WorldError("wrong")

    with pytest.raises(WorldError, match="wrong"):
        Caller("here", attempts=9, deadline_s=30).call(once)
    assert clock.slept == []


def test_retries_are_a_quarter_of_the_calls_in_a_storm(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_FAILURES", 10**9)
    caller, asked = Caller("here", attempts=4, deadline_s=1e6), [0]

    def once(_until: float) -> str:
        asked[0] += 1
        raise Passing("status 503")

    for _ in range(1000):
        with pytest.raises(WorldError):
            caller.call(once)
    assert asked[0] - 1000 <= 250 + 10


def test_a_server_that_fails_is_left_alone_and_asked_again_by_one_call(clock: Clock) -> None:
    caller, asked = Caller("here", attempts=1, deadline_s=30), [0]

    def once(_until: float) -> str:
        asked[0] += 1
        raise Passing("connection refused")

    for _ in range(20):
        with pytest.raises(WorldError):
            caller.call(once)
    assert asked[0] == 5
    with pytest.raises(WorldError, match=r"left alone.*where: here; got: 5 calls"):
        caller.call(once)
    clock.now += 2.1

    def probing(until: float) -> str:
        with pytest.raises(WorldError, match="left alone"):  # while one call tries, others do not
            caller.call(once)
        return failing(0)(until)

    assert caller.call(probing) == "fine"
    assert caller.call(failing(0)) == "fine"
    assert asked[0] == 5
