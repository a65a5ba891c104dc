"""Text that goes on inside a turn: nothing of the template stands before it, and none of it is a control token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat import Refusal
from agentgym_tok.chat.inline import fold
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Context
from agentgym_tok.types import Message, ToolCall

ASKED = Message("user", "Who wrote it?")


def searched(chat: ChatFormat, *, stop: bool = False) -> Context:
    ids_T = chat.encode("<search> it </search>")
    return chat.open([ASKED]).sampled([*ids_T.tolist(), *(chat.stop_ids[:1] if stop else ())])


@given(st.lists(st.text(max_size=30) | st.sampled_from(["<|im_end|>", "<think>", "\ud800"]), min_size=1, max_size=3))
@settings(max_examples=80, deadline=None)
def test_the_turn_goes_on_with_exactly_the_text(builtin: ChatFormat, texts: list[str]) -> None:
    turn = searched(builtin)
    after = builtin.bridge(turn, [Message("inline", text) for text in texts])
    assert isinstance(after, Context)
    assert after.parent is turn
    assert np.array_equal(after.ids[: len(turn)], turn.ids)
    assert builtin.decode(after.span.ids_T) == "".join(texts).replace("\ud800", "\N{REPLACEMENT CHARACTER}")
    assert after.span.origin == "observation"
    assert after.span.replaced == "".join(texts).count("\ud800")
    assert not builtin.control_ids.intersection(after.span.ids_T.tolist())


def test_the_policy_goes_on_and_ends_its_turn_later(builtin: ChatFormat) -> None:
    found = builtin.bridge(searched(builtin), [Message("inline", "\n<information>Ann</information>\n")])
    assert isinstance(found, Context)
    answered = found.sampled([*builtin.encode("<answer>Ann</answer>").tolist(), builtin.stop_ids[0]])
    after = builtin.bridge(answered, [Message("user", "Sure?")])
    assert isinstance(after, Context)
    said = "<search> it </search>\n<information>Ann</information>\n<answer>Ann</answer>"
    whole = builtin.open([ASKED, Message("assistant", said), Message("user", "Sure?")])
    assert builtin.decode(after.ids) == builtin.decode(whole.ids)


def test_a_closed_turn_is_not_opened_again(builtin: ChatFormat) -> None:
    refused = builtin.bridge(searched(builtin, stop=True), [Message("inline", "x")])
    assert isinstance(refused, Refusal)
    assert refused.reason == "closed_turn"
    for messages in ([Message("inline", "x"), ASKED], [ASKED, Message("inline", "x")]):
        mixed = builtin.bridge(searched(builtin), messages)
        assert isinstance(mixed, Refusal)
        assert mixed.reason == "closed_turn"


def test_a_rendering_folds_inline_text_into_its_turn(builtin: ChatFormat) -> None:
    calls = (ToolCall("look", {}),)
    conversation = [
        ASKED,
        Message("assistant", "<search>it", reasoning="so"),
        Message("inline", "[a]"),
        Message("inline", "[b]"),
        Message("assistant", "Ann", tool_calls=calls),
        Message("user", "Sure?"),
        Message("assistant", "Yes"),
    ]
    folded = fold(conversation)
    assert [message.role for message in folded] == ["user", "assistant", "user", "assistant"]
    assert folded[1] == Message("assistant", "<search>it[a][b]Ann", tool_calls=calls, reasoning="so")
    assert folded[3] == conversation[-1]
    assert np.array_equal(builtin.open(conversation).ids, builtin.open(folded).ids)
    assert builtin.apply_chat_template(conversation) == builtin.apply_chat_template(folded)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([Message("inline", "x")], "it follows nothing"),
        ([ASKED, Message("inline", "x")], "it follows role user"),
        ([ASKED, Message("assistant", "y"), Message("inline", "x")], "half a turn"),
    ],
)
def test_half_a_turn_is_never_rendered(builtin: ChatFormat, messages: list[Message], message: str) -> None:
    with pytest.raises(ChatError, match=message):
        builtin.open(messages)


def test_images_are_refused_rather_than_left_out(builtin: ChatFormat) -> None:
    shown = Message("user", "Look.", images=("0" * 64,))
    with pytest.raises(ChatError, match="no ids for images"):
        builtin.open([shown])
    with pytest.raises(ChatError, match="no ids for images"):
        builtin.bridge(searched(builtin), [shown])
