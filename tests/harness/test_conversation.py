"""Conversations: what they are made of, and what becomes of ids where they are rebuilt."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Context, Message, Refusal
from agentgym_tok.harness import Conversation, Exchange
from agentgym_tok.tokens import TURN_ORIGINS, Span, as_ids

OPENING = (Message("system", "Walk."), Message("user", "You are in room 0."))


def conversation(chat: ChatFormat, *turns: list[int]) -> Conversation:
    made = Conversation(chat, chat.open(OPENING), OPENING)
    for number, ids in enumerate(turns):
        answered = made.context.sampled(as_ids(ids), [-0.5] * len(ids))
        messages = [Message("user", f"You are in room {number + 1}.")]
        context = chat.bridge(answered, messages)
        assert isinstance(context, Context), context
        made = made.followed(answered, chat.parse(answered.span.ids_T).message(), messages, context)
    return made


def turns_in(context: Context) -> list[list[int]]:
    return [span.ids_T.tolist() for span in context.spans if span.origin in TURN_ORIGINS]


def made_of(chat: ChatFormat, *words: str) -> Conversation:
    return conversation(chat, *(chat.encode_turn(word).tolist() for word in words))


@pytest.fixture(params=["builtin", "qwen2_5", "qwen3", "deepseek_v3"])
def chat(request: pytest.FixtureRequest) -> ChatFormat:
    found: ChatFormat = request.getfixturevalue(request.param)
    return found


def test_it_holds_what_was_said_in_order(chat: ChatFormat) -> None:
    empty = made_of(chat)
    assert empty.context is empty.first
    assert (empty.messages, empty.fresh) == (OPENING, 0)
    talk = made_of(chat, "north", "south")
    assert [message.content for message in talk.messages] == [
        *["Walk.", "You are in room 0.", "north", "You are in room 1.", "south", "You are in room 2."]
    ]
    assert talk.context is talk.exchanges[-1].context
    assert talk.fresh == 2
    assert turns_in(talk.context) == [chat.encode_turn("north").tolist(), chat.encode_turn("south").tolist()]


def test_its_own_beginning_is_the_very_contexts(chat: ChatFormat) -> None:
    talk = made_of(chat, "north", "south", "east")
    for length in range(4):
        again = talk.rebuilt(talk.exchanges[:length])
        assert isinstance(again, Conversation)
        assert all(new is old for new, old in zip(again.exchanges, talk.exchanges, strict=False))
        assert again.context is (talk.exchanges[length - 1].context if length else talk.first)
        assert (again.rewritten, again.fresh) == (length, 0)


def test_what_is_out_of_its_place_keeps_its_ids_behind_another_past(chat: ChatFormat) -> None:
    talk = made_of(chat, "north", "south", "east")
    again = talk.rebuilt([talk.exchanges[0], talk.exchanges[2]])
    assert isinstance(again, Conversation)
    assert again.exchanges[0] is talk.exchanges[0]
    moved = again.exchanges[1]
    assert moved.answered.parent is talk.exchanges[0].context
    assert moved.answered.span is talk.exchanges[2].answered.span
    assert moved.context.span.ids_T.tolist() == talk.exchanges[2].context.span.ids_T.tolist()
    assert (
        again.context.ids.tolist()
        == made_of(chat, "north", "east").exchanges[1].answered.ids.tolist()[: len(moved.answered)]
        + moved.context.span.ids_T.tolist()
    )


def test_other_words_to_a_turn_leave_the_turn_where_it_stands(chat: ChatFormat) -> None:
    talk = made_of(chat, "north", "south")
    first = talk.exchanges[0]
    other = Exchange(first.answered, first.said, (Message("user", "It is dark."),), first.context)
    again = talk.rebuilt([other])
    assert isinstance(again, Conversation)
    assert again.exchanges[0].answered is first.answered
    assert "It is dark." in chat.decode(again.context.span.ids_T)
    assert "room 1" not in chat.decode(again.context.ids)


def test_the_exchanges_of_another_conversation_are_not_its_own(chat: ChatFormat) -> None:
    talk, other = made_of(chat, "north"), made_of(chat, "north", "south")
    again = talk.rebuilt(other.exchanges)
    assert isinstance(again, Conversation)
    assert again.first is talk.first
    assert [*again.context.lineage()][-1] is talk.first
    assert again.context.ids.tolist() == other.context.ids.tolist()


def test_a_refusal_leaves_it_as_it_was(builtin: ChatFormat) -> None:
    talk = made_of(builtin, "north", "south")
    before = talk.context.ids.tolist()
    first = talk.exchanges[0]
    refused = talk.rebuilt([Exchange(first.answered, first.said, (), first.context)])
    assert isinstance(refused, Refusal)
    assert refused.reason == "no_messages"
    assert talk.context.ids.tolist() == before


def test_the_tools_of_the_first_prompt_stay(builtin: ChatFormat) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    first = builtin.open(OPENING, [tool])
    talk, said = Conversation(builtin, first, OPENING), builtin.encode_turn("north")
    exchange = made_of(builtin, "north").exchanges[0]
    again = talk.rebuilt([exchange])
    assert isinstance(again, Conversation)
    assert again.context.root is first.root
    assert turns_in(again.context) == [said.tolist()]


Rebuild = Callable[[Conversation], list[Exchange]]


@settings(max_examples=60)
@given(
    turns=st.lists(st.lists(st.integers(0, 4095), min_size=1, max_size=8), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 4), max_size=6),
)
def test_any_turns_in_any_order_keep_their_ids(builtin: ChatFormat, turns: list[list[int]], places: list[int]) -> None:
    talk = conversation(builtin, *turns)
    chosen = [place % len(turns) for place in places]
    again = talk.rebuilt([talk.exchanges[place] for place in chosen])
    assert isinstance(again, Conversation)
    assert turns_in(again.context) == [turns[place] for place in chosen]
    shared = next((at for at, place in enumerate(chosen) if at != place), len(chosen))
    for place, exchange in enumerate(again.exchanges):
        assert (exchange is talk.exchanges[place]) if place < shared else True
        assert exchange.answered.ids.tolist() == exchange.context.ids[: len(exchange.answered)].tolist()
        bridged = builtin.bridge(exchange.answered, exchange.messages)
        assert isinstance(bridged, Context)
        assert bridged.ids.tolist() == exchange.context.ids.tolist()
    # The old one is untouched: forks never write into what they share.
    assert turns_in(talk.context) == turns
    assert talk.context.ids.tolist() == [index for span in talk.context.spans for index in span.ids_T.tolist()]


def test_spans_keep_their_logprobs_and_origins(builtin: ChatFormat) -> None:
    talk = made_of(builtin, "north", "south")
    first = talk.exchanges[1]
    shown = first.answered.parent
    assert shown is not None
    demonstrated = shown.extend(Span(first.answered.span.ids_T, "demonstration"))
    again = talk.rebuilt([Exchange(demonstrated, first.said, first.messages, first.context), talk.exchanges[0]])
    assert isinstance(again, Conversation)
    assert [span.origin for span in again.context.spans] == [
        *["prompt", "demonstration", "observation", "sampled", "observation"]
    ]
    assert again.exchanges[1].answered.span.logprobs_T is talk.exchanges[0].answered.span.logprobs_T
