"""Delimiters are the same ones whether a turn is whole or arrives id by id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat.dialects.turn import ArrivingTurn, Event, TurnText, any_of
from agentgym_tok.tokens import as_ids

pieces = st.lists(
    st.tuples(st.sampled_from(["<tool_call>", "</think>", "<look>", "<", "</", "tool_call>", "a", "é"]), st.booleans()),
    max_size=10,
)


@pytest.mark.parametrize("together", [False, True])
@given(pieces=pieces)
@settings(max_examples=200, deadline=None)
def test_delimiters_that_arrive_are_those_of_the_whole_turn(
    builtin: ChatFormat, together: bool, pieces: list[tuple[str, bool]]
) -> None:
    tokenizer, delimiters = builtin._tokenizer, ("<tool_call>", "</think>", "<look>")  # the last has no token
    ids: list[int] = []
    for text, meant in pieces:
        ids += (tokenizer.encode(text) if meant else builtin.encode(text)).tolist()
    arriving = ArrivingTurn(tokenizer, delimiters, together=together)
    events: list[Event] = [event for index in ids for event in arriving.push(index)]
    events += arriving.finish()
    whole = TurnText(tokenizer, as_ids(ids), ())
    marks = [event.mark for event in events if not isinstance(event, bytes)]
    assert marks == whole.marks(any_of(*delimiters), together=together)
    assert [event.quoted for event in events if not isinstance(event, bytes)] == [
        whole.is_quoted(mark) for mark in marks
    ]
    assert b"".join(event if isinstance(event, bytes) else event.mark.text for event in events) == whole.raw
    for mark in marks:
        part, place = arriving.between(mark.start, mark.end)
        first, last = whole.tokens(mark.start, mark.end)
        assert part.ids == ids[first:last]
        assert part.raw[mark.start - place : mark.end - place] == mark.text


def test_delimiters_that_are_forgotten_are_text(builtin: ChatFormat) -> None:
    arriving = ArrivingTurn(builtin._tokenizer, ("<tool_call>",))
    opener = builtin._tokenizer.token_id("<tool_call>")
    assert opener is not None
    assert [arriving.push(index) for index in builtin.encode("a<").tolist()] == [[b"a"], []]
    assert arriving.is_delimiter(opener)
    arriving.forget_delimiters()
    assert not arriving.is_delimiter(opener)
    assert arriving.push(opener) == [b"<<tool_call>"]
    assert arriving.finish() == []
