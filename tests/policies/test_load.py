"""Policies by name, by value, and by callable."""

import sys
import types
from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat, Completion, Policy, Request
from agentgym_tok.errors import ConfigError, PolicyError, UnknownName
from agentgym_tok.policies import CallablePolicy, ExpertPolicy, load_policy
from agentgym_tok.tokens import as_ids

CHAT = ChatFormat.builtin()
ASKED = Request(as_ids([1, 2, 3]), seed=5)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("some_agent")
    monkeypatch.setitem(sys.modules, "some_agent", made)
    return made


def test_names_policies_and_callables_are_taken() -> None:
    expert = load_policy("expert", CHAT)
    assert isinstance(expert, ExpertPolicy)
    assert load_policy(expert, CHAT) is expert
    assert isinstance(load_policy(lambda ids_T: ids_T, CHAT), CallablePolicy)
    for policy in (expert, load_policy("random", CHAT), load_policy(lambda ids_T: ids_T, CHAT)):
        assert isinstance(policy, Policy)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean expert"):
        load_policy("exprt", CHAT)
    with pytest.raises(ConfigError, match="no policy"):
        load_policy(17, CHAT)  # type: ignore[arg-type]


def test_python_policies_are_functions_policies_or_classes_of_a_module(module: types.ModuleType) -> None:
    module.act = lambda ids_T: ids_T[:1]  # type: ignore[attr-defined]
    module.made = ExpertPolicy(CHAT)  # type: ignore[attr-defined]
    assert load_policy("python:some_agent:act", CHAT).generate([ASKED])[0].ids_T.tolist() == [1]
    assert load_policy("python:some_agent:made", CHAT) is module.made
    for wrong in ("python:some_agent", "python:some_agent:missing", "python:no_such_module:act", "python::"):
        with pytest.raises(ConfigError):
            load_policy(wrong, CHAT)


def test_a_callable_gives_ids_or_ids_with_log_probabilities_or_a_completion() -> None:
    plain = CallablePolicy(lambda ids_T: [4, CHAT.stop_ids[0]], CHAT).generate([ASKED])[0]
    assert (plain.finish_reason, plain.logprobs, plain.origin) == ("stop", "missing", "sampled")
    pair = CallablePolicy(lambda ids_T: ([4], [-0.25]), CHAT).generate([ASKED])[0]
    assert (pair.finish_reason, pair.logprobs) == ("length", "raw")
    assert pair.logprobs_T is not None
    assert pair.logprobs_T.tolist() == [-0.25]
    assert pair.sampling == ASKED.sampling
    whole = Completion(as_ids([7]), engine="mine")
    assert CallablePolicy(lambda ids_T: whole, CHAT).generate([ASKED])[0] is whole


def test_a_callable_that_wants_the_request_gets_it() -> None:
    seen: list[Any] = []

    def act(ids_T: Any, request: Request) -> Any:
        seen.append(request)
        return ids_T

    def act_with_default(ids_T: Any, temperature: float = 1.0) -> Any:
        assert isinstance(temperature, float)
        return ids_T

    CallablePolicy(act, CHAT).generate([ASKED])
    CallablePolicy(act_with_default, CHAT).generate([ASKED])
    assert seen == [ASKED]


def test_a_callable_cannot_change_the_context() -> None:
    def act(ids_T: Any) -> Any:
        ids_T[0] = 9
        return ids_T

    with pytest.raises(PolicyError, match="read-only"):
        CallablePolicy(act, CHAT).generate([ASKED])


@pytest.mark.parametrize(
    "answer", [np.array([0.5]), [[1]], [-1], [10**9], "text", None, ([1, 2], [-1.0]), ([1], [0.5])]
)
def test_what_is_no_turn_is_a_policy_error_or_names_the_log_probabilities(answer: Any) -> None:
    with pytest.raises((PolicyError, ValueError)) as caught:
        CallablePolicy(lambda ids_T: answer, CHAT, name="odd").generate([ASKED])
    assert "got:" in str(caught.value)


def test_a_policy_that_raises_is_named() -> None:
    def act(ids_T: Any) -> Any:
        return 1 // 0

    with pytest.raises(PolicyError, match=r"ZeroDivisionError; where: act"):
        CallablePolicy(act, CHAT).generate([ASKED])


async def _pieces(policy: CallablePolicy) -> list[Any]:
    return [delta async for delta in policy.stream(ASKED)]


def test_a_synchronous_policy_streams_its_whole_turn() -> None:
    import asyncio

    pieces = asyncio.run(_pieces(CallablePolicy(lambda ids_T: ids_T, CHAT)))
    assert [piece.ids_T.tolist() for piece in pieces] == [[1, 2, 3]]
    assert pieces[-1].completion is not None
