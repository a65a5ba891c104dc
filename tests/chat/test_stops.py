"""A turn ends with the token that completes a stop string, whoever finds it: the model's own loop, or who reads one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Request, Sampling
from agentgym_tok.chat.stops import StopWatch, end_doubt, stop_end, text_end
from agentgym_tok.policies.base import CallablePolicy
from agentgym_tok.tokens import Context, as_ids
from agentgym_tok.types import Message

CHAT = ChatFormat.builtin()
WORDS = ("</search>", "🤖!", "é", "aab", "\n\n", "<|im_end|>", "search>", "a")
SPELLED = {entry[0]: index for index, entry in enumerate(CHAT._tokenizer.token_bytes) if len(entry) == 1}

sayings = st.lists(st.sampled_from([*WORDS, "aa", "b", "</", "🤖", "<search> q ", "x\n"]), max_size=8).map("".join)
turns = st.one_of(
    st.lists(st.integers(0, CHAT.vocab_size - 1), max_size=24),
    sayings.map(lambda text: CHAT.tokenize(text).tolist()),
    sayings.map(lambda text: [SPELLED[byte] for byte in text.encode()]),  # half characters in tokens of their own
    st.binary(max_size=16).map(lambda raw: [SPELLED[byte] for byte in raw]),
)
stops = st.lists(st.sampled_from(WORDS), max_size=4, unique=True).map(tuple)


def naive(ids: list[int], stop: tuple[str, ...]) -> int | None:
    """Return the length of the shortest beginning whose text contains a stop string."""
    beginnings = (CHAT.decode(as_ids(ids[:end])) for end in range(1, len(ids) + 1))
    return next((end for end, text in enumerate(beginnings, 1) if any(one in text for one in stop)), None)


@given(turns, stops, st.data())
@settings(max_examples=400, deadline=None)
@example([SPELLED[byte] for byte in "🤖!".encode()[1:] + "🤖!".encode()], ("🤖!",), None)
def test_a_turn_ends_at_the_shortest_beginning_that_contains_a_stop_string(
    ids: list[int], stop: tuple[str, ...], data: Any
) -> None:
    text = CHAT.decode(as_ids(ids))
    if data is not None and text and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(text) - 1))
        piece = text[start : start + data.draw(st.integers(1, 6))]
        stop = (*stop[:3], piece) if "\ufffd" not in piece and piece not in stop[:3] else stop
    end = naive(ids, stop)
    assert stop_end(CHAT, ids, stop) == end
    watch = StopWatch(CHAT, stop)
    assert next((place for place, index in enumerate(ids, 1) if watch.push(index)), None) == end
    assert text_end(text, stop) == (None if end is None else min(text.find(s) + len(s) for s in stop if s in text))


@given(turns, stops)
@settings(max_examples=200, deadline=None)
def test_a_model_draws_no_further_than_the_reader_accepts(ids: list[int], stop: tuple[str, ...]) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from agentgym_tok.policies.hf_turn import DrawnTurn  # extra `torch`

    turn = DrawnTurn(Request(as_ids([5]), Sampling(stop=stop, temperature=0, max_tokens=1000)), CHAT, 1000)
    for index in ids:
        logits_V = torch.zeros(CHAT.vocab_size)
        logits_V[index] = 50
        turn.draw(logits_V, "0")
    drawn = turn.answer("hf:test")
    assert not isinstance(drawn, Exception)
    by_token = next((place for place, index in enumerate(ids, 1) if index in CHAT.stop_ids), None)
    end = min((place for place in (by_token, naive(ids, stop)) if place is not None), default=None)
    assert drawn.ids_T.tolist() == ids[:end]  # nothing is cut, nothing is drawn behind
    assert (drawn.finish_reason == "stop") is (end is not None)
    assert end_doubt(CHAT, drawn.ids_T, stop, stopped=end is not None) == ""


@given(turns, stops)
@settings(max_examples=200, deadline=None)
def test_a_stop_without_a_token_is_accepted_only_where_the_last_id_completes_a_string(
    ids: list[int], stop: tuple[str, ...]
) -> None:
    ids_T, end = as_ids(ids), naive(ids, stop)
    closed = bool(ids) and ids[-1] in CHAT.stop_ids
    doubt = end_doubt(CHAT, ids_T, stop, stopped=True)
    if end == len(ids):
        assert doubt == ""
    elif end is not None:
        assert "behind a stop string" in doubt
    else:
        assert (doubt == "") is closed
    assert end_doubt(CHAT, ids_T, stop, stopped=False) == (doubt if end is not None else "")


@pytest.mark.parametrize(
    ("turn", "stop", "finish"),
    [
        ("<search> q </search>", ("</search>",), "stop"),
        ("<search> q </search>", (), "length"),
        ("<search> q </search>", ("<search>",), "length"),
        ("<search> q", ("</search>",), "length"),
    ],
)
def test_a_function_is_not_held_to_stop_strings_and_its_turn_says_how_it_ended(
    turn: str, stop: tuple[str, ...], finish: str
) -> None:
    ids_T = CHAT.encode(turn)
    answer = CallablePolicy(lambda _: ids_T, CHAT).answer(Request(as_ids([5]), Sampling(stop=stop)))
    assert (answer.ids_T.tolist(), answer.finish_reason) == (ids_T.tolist(), finish)


@pytest.mark.parametrize("turn", ["I look. <search> q </search>", "so</search>\n"])
def test_a_turn_that_a_stop_string_ended_is_closed_by_the_bridge_and_untouched(turn: str) -> None:
    context = CHAT.open([Message("user", "Who built it?")])
    turn_T = CHAT.encode(turn)
    said = context.sampled(turn_T, np.full(len(turn_T), -0.5, np.float32))
    closer = CHAT.token_text(CHAT.stop_ids[0])
    for message, follows in (
        (Message("user", "Go on."), closer),
        (Message("inline", "<information>"), "<information>"),
    ):
        bridged = CHAT.bridge(said, [message])
        assert isinstance(bridged, Context)
        assert bridged.ids.tolist()[: len(said)] == said.ids.tolist()
        assert CHAT.decode(bridged.span.ids_T).startswith(follows)
        assert (bridged.span.origin, bridged.span.logprobs_T) == ("observation", None)
