"""Policies by name, by value, and by callable."""

import asyncio
import inspect
import sys
import types
from typing import Any

import numpy as np
import pytest
from pydantic import PositiveInt

from agentgym_tok import ChatFormat, Completion, Policy, Request, Sampling
from agentgym_tok.errors import ConfigError, InvalidLogprobs, MissingExtra, PolicyError, UnknownName
from agentgym_tok.policies import BasePolicy, CallablePolicy, ExpertPolicy, load_policy
from agentgym_tok.policies.load import POLICIES
from agentgym_tok.policies.options import checked_options
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
    named = [load_policy(name, CHAT) for name in ("explorer", "random")]
    for policy in (expert, *named, load_policy(lambda ids_T: ids_T, CHAT)):
        assert isinstance(policy, Policy)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean expert"):
        load_policy("exprt", CHAT)
    with pytest.raises(ConfigError, match="no policy"):
        load_policy(17, CHAT)  # type: ignore[arg-type]


class Tuned(BasePolicy):
    """Take options of several types."""

    def __init__(
        self, path: str, chat: ChatFormat, *, size: PositiveInt = 3, device: str | None = None, wait_s: float = 1.0
    ) -> None:
        self.given = (path, size, device, wait_s)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "tuned", lambda: Tuned)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tuned:a/b", ("a/b", 3, None, 1.0)),
        ("tuned:a/b?size=8&device=cuda:1", ("a/b", 8, "cuda:1", 1.0)),
        ("tuned:http://host:80/v1?wait_s=0.5#some/model", ("http://host:80/v1#some/model", 3, None, 0.5)),
        ("tuned:http://host#some:4b?size=1", ("http://host#some:4b", 1, None, 1.0)),
        ("tuned:a?device=two%20%26%20three", ("a", 3, "two & three", 1.0)),
        ("tuned:a?device=", ("a", 3, "", 1.0)),
    ],
)
def test_options_stand_behind_a_name(tuned: None, name: str, given: tuple[Any, ...]) -> None:
    policy = load_policy(name, CHAT)
    assert isinstance(policy, Tuned)
    assert policy.given == given


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        (
            "tuned:a?sise=8",
            UnknownName,
            r"option; where: policy tuned; .*device, size, wait_s; .*you mean size",
        ),
        ("tuned:a?chat=8", UnknownName, "unknown option"),
        ("tuned:a?size=0", ConfigError, "where: policy tuned: size; got: 0; expected: .*greater than 0"),
        ("tuned:a?size=many", ConfigError, "got: many; expected: .*integer"),
        ("tuned:a?size=1&size=2", ConfigError, "comes twice"),
        ("tuned:a?size", ConfigError, "POLICY[?]NAME=VALUE"),
        ("expert?x=1", UnknownName, "no option exists"),
        ("python:some_agent:act?x=1", UnknownName, "no option exists"),
    ],
)
def test_options_that_a_policy_does_not_have_are_refused(
    tuned: None, name: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        load_policy(name, CHAT)


def test_every_class_behind_a_name_has_options_whose_types_are_known() -> None:
    for kind, found in POLICIES.items():
        try:
            made = found()
        except MissingExtra:
            continue
        options = [one for one in inspect.signature(made).parameters.values() if one.kind is one.KEYWORD_ONLY]
        for option in options:
            assert isinstance(option.default, (int, float, str, type(None))), f"{kind}: {option.name}"
            given = {option.name: "1" if option.default is None else str(option.default)}
            read = checked_options(made, given, kind)[option.name]
            assert read == option.default or (option.default is None and str(read) == "1")


def test_python_policies_are_functions_or_policies_of_a_module(module: types.ModuleType) -> None:
    module.act = lambda ids_T: ids_T[:1]  # type: ignore[attr-defined]
    module.made = ExpertPolicy(CHAT)  # type: ignore[attr-defined]
    (turn,) = load_policy("python:some_agent:act", CHAT).generate([ASKED])
    assert isinstance(turn, Completion)
    assert turn.ids_T.tolist() == [1]
    assert load_policy("python:some_agent:made", CHAT) is module.made
    for wrong in ("python:some_agent", "python:some_agent:missing", "python:no_such_module:act", "python::"):
        with pytest.raises(ConfigError):
            load_policy(wrong, CHAT)


def test_a_class_is_no_policy(module: types.ModuleType) -> None:
    module.Mine = ExpertPolicy  # type: ignore[attr-defined]
    for policy in (ExpertPolicy, "python:some_agent:Mine"):
        with pytest.raises(ConfigError, match=r"a class is no policy; .*next: make one, such as ExpertPolicy\(chat\)"):
            load_policy(policy, CHAT)


def test_a_policy_that_is_not_whole_is_told_what_is_missing() -> None:
    class Mine:
        deterministic = False

        def generate(self, requests: Any) -> list[Completion]:
            return []

    class Called(Mine):
        def __call__(self) -> None: ...

    missing = r"got: \w+ without name, wants_info, stream; .*next: inherit agentgym_tok.policies.BasePolicy"
    for policy in (Mine(), Called()):  # as a model of transformers, which is callable and generates
        with pytest.raises(ConfigError, match=missing):
            load_policy(policy, CHAT)  # type: ignore[arg-type]


def test_a_policy_of_ones_own_needs_nothing_but_an_answer() -> None:
    class Mine(BasePolicy):
        def answer(self, request: Request) -> Completion:
            if request.seed == 2:
                raise RuntimeError("no")
            return Completion(request.ids_T[:1])

    policy = Mine()
    assert load_policy(policy, CHAT) is policy
    first, failed, last = policy.generate([ASKED, Request(as_ids([1]), seed=2), ASKED])
    assert isinstance(first, Completion)
    assert isinstance(last, Completion)
    assert str(failed) == "no"
    with pytest.raises(RuntimeError, match="no"):
        asyncio.run(_pieces(policy, Request(as_ids([1]), seed=2)))


def test_a_callable_gives_ids_or_ids_with_log_probabilities_or_a_completion() -> None:
    plain = CallablePolicy(lambda ids_T: [4, CHAT.stop_ids[0]], CHAT).answer(ASKED)
    assert (plain.finish_reason, plain.logprobs, plain.origin) == ("stop", "missing", "sampled")
    pair = CallablePolicy(lambda ids_T: ([4], [-0.25]), CHAT).answer(ASKED)
    assert (pair.finish_reason, pair.logprobs) == ("length", "raw")
    assert pair.logprobs_T is not None
    assert pair.logprobs_T.tolist() == [-0.25]
    assert pair.sampling == ASKED.sampling
    whole = Completion(as_ids([7]), engine="mine")
    assert CallablePolicy(lambda ids_T: whole, CHAT).answer(ASKED) is whole


@pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {"temperature": 0}, {"top_p": 0.9}, {"top_k": 5}])
def test_log_probabilities_of_who_knows_what_are_refused(sampling: dict[str, float]) -> None:
    asked = Request(as_ids([1, 2]), Sampling(**sampling))  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"what the log-probabilities are of; .*expected: a Completion"):
        CallablePolicy(lambda ids_T: ([4], [-0.25]), CHAT).answer(asked)
    assert CallablePolicy(lambda ids_T: [4], CHAT).answer(asked).logprobs == "missing"
    said = Completion(as_ids([4]), np.array([-0.5], np.float32), logprobs="processed")
    assert CallablePolicy(lambda ids_T: said, CHAT).answer(asked) is said


def test_log_probabilities_are_numbers_and_not_their_spelling() -> None:
    with pytest.raises(InvalidLogprobs, match="no array"):
        CallablePolicy(lambda ids_T: ([4], ["-0.1"]), CHAT).answer(ASKED)


def test_a_callable_that_wants_the_request_gets_it() -> None:
    seen: list[Any] = []

    def act(ids_T: Any, request: Request) -> Any:
        seen.append(request)
        return ids_T

    def act_with_default(ids_T: Any, temperature: float = 1.0) -> Any:
        assert isinstance(temperature, float)
        return ids_T

    CallablePolicy(act, CHAT).answer(ASKED)
    CallablePolicy(act_with_default, CHAT).answer(ASKED)
    assert seen == [ASKED]


def test_a_callable_cannot_change_the_context() -> None:
    def act(ids_T: Any) -> Any:
        ids_T[0] = 9
        return ids_T

    with pytest.raises(PolicyError, match="read-only"):
        CallablePolicy(act, CHAT).answer(ASKED)


@pytest.mark.parametrize(
    "answer", [np.array([0.5]), [[1]], [-1], [10**9], "text", None, (1, 2), ([1, 2], [-1.0]), ([1], [0.5])]
)
def test_what_is_no_turn_is_a_policy_error_or_names_the_log_probabilities(answer: Any) -> None:
    with pytest.raises((PolicyError, ValueError)) as caught:
        CallablePolicy(lambda ids_T: answer, CHAT, name="odd").answer(ASKED)
    assert "got:" in str(caught.value)


def test_a_policy_that_raises_is_named() -> None:
    def act(ids_T: Any) -> Any:
        return 1 // 0

    with pytest.raises(PolicyError, match=r"ZeroDivisionError; where: act"):
        CallablePolicy(act, CHAT).answer(ASKED)


@pytest.mark.parametrize(("error", "transient"), [(ConnectionResetError, True), (TimeoutError, True), (OSError, False)])
def test_a_function_that_met_no_answer_may_be_asked_again(error: type[Exception], *, transient: bool) -> None:
    def act(ids_T: Any) -> Any:
        raise error("gone")

    with pytest.raises(PolicyError, match=f"raised {error.__name__}") as caught:
        CallablePolicy(act, CHAT).answer(ASKED)
    assert caught.value.transient is transient


async def _pieces(policy: BasePolicy, request: Request = ASKED) -> list[Any]:
    return [delta async for delta in policy.stream(request)]


def test_a_synchronous_policy_streams_its_whole_turn() -> None:
    pieces = asyncio.run(_pieces(CallablePolicy(lambda ids_T: ids_T, CHAT)))
    assert [piece.ids_T.tolist() for piece in pieces] == [[1, 2, 3]]
    assert pieces[-1].completion is not None
