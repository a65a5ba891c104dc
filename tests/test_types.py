"""Messages, completions and sampling: read from outside, checked, and never changed by a round trip."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentgym_tok.errors import ChatError, InvalidIds, InvalidLogprobs, PolicyError
from agentgym_tok.types import (
    AssistantMessage,
    Completion,
    Delta,
    Message,
    Policy,
    Request,
    Sampling,
    ScoreRequest,
    ToolCall,
    Trusted,
)

texts = st.text(max_size=12)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
calls = st.builds(
    ToolCall, name=texts.filter(bool), arguments=st.dictionaries(texts, json_values, max_size=3), id=texts
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    reasoning=st.none() | texts.filter(bool),
)


@given(messages)
@settings(deadline=None)
def test_a_message_comes_back_from_its_dictionary(message: Message) -> None:
    assert Message.of(message.to_dict()) == message
    assert Message.of(message) is message


def test_absent_parts_are_left_out_of_the_dictionary() -> None:
    assert Message("user", "hi").to_dict() == {"role": "user", "content": "hi"}


def test_a_message_of_the_chat_api_is_read_with_its_parsed_arguments() -> None:
    message = Message.of(
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": [1, "ü"]}'}},
                {"id": None, "function": {"name": "wait", "arguments": ""}},
                {"name": "flat", "arguments": {"a": 1}},
                ToolCall("kept", {}),
            ],
        }
    )
    assert (message.role, message.content, message.reasoning, message.trusted) == ("assistant", "", "hm", False)
    assert message.tool_calls == (
        ToolCall("look", {"at": [1, "ü"]}, "c1"),
        ToolCall("wait", {}),
        ToolCall("flat", {"a": 1}),
        ToolCall("kept", {}),
    )
    assert message.to_dict()["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": [1, "ü"]}}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param('{"at": ', "invalid_json", id="cut off"),
        pytest.param("[" * 10**5, "invalid_json", id="too deep"),
        pytest.param("[1]", "malformed", id="list"),
        pytest.param('"x"', "malformed", id="string"),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_their_text(text: str, status: str) -> None:
    message = Message.of({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]})
    assert message.tool_calls[0].arguments is None
    assert message.tool_calls[0].status == status
    assert message.to_dict()["tool_calls"][0]["function"]["arguments"] == text


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"content": "x"},
        {"role": None, "content": "x"},
        {"role": 3, "content": "x"},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": 0},
        {"role": "user", "content": b"x"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": "look"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": None}]},
    ],
)
def test_what_is_no_message_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ChatError):
        Message.of(bad)


@given(st.lists(st.one_of(texts, texts.map(Trusted)), max_size=8))
@settings(deadline=None)
def test_composed_messages_know_every_character_of_the_world(parts: list[str]) -> None:
    message = Message.compose("user", *parts)
    assert message.content == "".join(parts)
    world = [part for part in parts if not isinstance(part, Trusted) and part]
    assert [message.content[start:end] for start, end in message.untrusted] == world
    assert message.trusted


@pytest.mark.parametrize("ranges", [((0, 4),), ((-1, 1),), ((2, 1),), ((1, 2), (0, 1)), ((0, 2), (1, 3))])
def test_ranges_that_do_not_fit_the_content_are_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ChatError, match="ranges"):
        Message("user", "abc", trusted=True, untrusted=ranges)


def test_an_assistant_says_only_its_well_formed_calls_again() -> None:
    good, bad = ToolCall("look", {}), ToolCall("", None, raw="{", status="invalid_json")
    said = AssistantMessage("text", reasoning="hm", tool_calls=(good, bad)).message()
    assert said == Message("assistant", "text", tool_calls=(good,), reasoning="hm")


def test_a_completion_checks_and_freezes_its_arrays() -> None:
    completion = Completion([1, 2], [-0.5, -0.25], logprobs="raw")
    twins = [completion, pickle.loads(pickle.dumps(completion)), copy.deepcopy(completion)]
    for twin in twins:
        assert twin.ids_T.tolist() == [1, 2]
        assert twin.logprobs_T is not None
        assert twin.logprobs_T.tolist() == [-0.5, -0.25]
        assert not twin.ids_T.flags.writeable
        assert not twin.logprobs_T.flags.writeable


@pytest.mark.parametrize("ids", [[1.5], [True], ["x"], [-1], [2**31], [[1]]])
def test_a_completion_refuses_what_are_no_ids(ids: Any) -> None:
    with pytest.raises(InvalidIds, match="Completion"):
        Completion(ids)


@pytest.mark.parametrize("logprobs", [[-1.0], [-1.0, float("nan")], [-1.0, None], [0.5, -1.0], [-9.0, float("-inf")]])
def test_a_completion_refuses_impossible_logprobs(logprobs: Any) -> None:
    with pytest.raises(InvalidLogprobs):
        Completion([1, 2], logprobs, logprobs="raw")


def test_logprobs_and_their_kind_agree() -> None:
    with pytest.raises(PolicyError, match="engine x"):
        Completion([1], None, logprobs="raw", engine="engine x")
    with pytest.raises(PolicyError):
        Completion([1], [-1.0])
    assert Completion([]).logprobs == "missing"


@pytest.mark.parametrize("runs", [((0, 3),), ((-1, 1),), ((2, 1),), ((0, 2), (1, 2)), ((1, 2), (0, 1))])
def test_weight_versions_lie_in_order_within_the_ids(runs: tuple[tuple[int, int], ...]) -> None:
    assert Completion([1, 2], weight_versions=(("a", 0, 1), ("b", 1, 2))).weight_versions
    with pytest.raises(PolicyError, match="weight versions do not fit"):
        Completion([1, 2], weight_versions=tuple(("a", start, end) for start, end in runs))


def test_what_holds_arrays_compares_by_identity_and_can_stand_in_sets() -> None:
    ids_T = np.arange(3, dtype=np.int32)
    for make in (lambda: Request(ids_T), lambda: Completion(ids_T), lambda: Delta(ids_T)):
        one, other = make(), make()
        assert one == one  # noqa: PLR0124
        assert one != other
        assert len({one, other}) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"max_tokens": 0},
        {"beams": 2},
        {"stop": ("",)},
        {"stop": ("a", "a")},
        {"stop": ("a\ufffd",)},
        {"stop": ("\ud800",)},
        {"stop": tuple("abcde")},
        {"stop": "ab"},
    ],
)
def test_sampling_refuses_what_no_engine_can_do(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sampling(**bad)


def test_sampling_without_stop_strings_is_written_as_it_always_was() -> None:
    assert Sampling().model_dump_json() == '{"temperature":1.0,"top_p":1.0,"top_k":0,"max_tokens":256}'
    stopped = Sampling(stop=("</search>", "ü\n"))
    assert Sampling.model_validate_json(stopped.model_dump_json()) == stopped
    assert Sampling.model_validate(stopped.model_dump(mode="json")) == stopped
    assert hash(stopped) != hash(Sampling())


def test_a_policy_is_known_by_what_it_can_do() -> None:
    class Silent:
        name, deterministic, wants_info = "silent", True, False

        def generate(self, requests: Any) -> list[Completion]:
            return [Completion([]) for _ in requests]

        def stream(self, request: Any) -> Any:
            raise NotImplementedError

    assert isinstance(Silent(), Policy)
    assert not isinstance(object(), Policy)


@pytest.mark.parametrize("parts", [((0, 2),), ((1, 5),), ((3, 2),), ((1, 3), (2, 4)), ((3, 4), (1, 2))])
def test_ids_without_a_context_or_outside_the_sequence_cannot_be_scored(parts: tuple[tuple[int, int], ...]) -> None:
    ids_T = np.arange(4, dtype=np.int32)
    assert ScoreRequest(ids_T, ((1, 3, Sampling()), (3, 4, Sampling()))).parts
    with pytest.raises(PolicyError, match="cannot be scored"):
        ScoreRequest(ids_T, tuple((start, end, Sampling()) for start, end in parts))
