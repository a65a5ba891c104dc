"""A client sees a turn as it is drawn, and in the end has seen what the turn says."""

import json

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.chat.streaming import TurnStream, opens_reasoning
from agentgym_tok.errors import ChatError, InvalidIds
from agentgym_tok.types import Message, ToolCall


def byte_ids(chat: ChatFormat, raw: bytes) -> list[int]:
    """Spell bytes one id each, as a policy may."""
    single = {entry[0]: index for index, entry in enumerate(chat._tokenizer.token_bytes) if len(entry) == 1}
    return [single[byte] for byte in raw]


def push(turn: TurnStream, chat: ChatFormat, *texts: str) -> list[list[TurnDelta]]:
    return [turn.push(chat._tokenizer.encode(text)) for text in texts]


def test_a_turn_is_told_piece_by_piece(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin)
    assert push(turn, builtin, "<think>", "\nHm", " so.\n", "</think>", "\n\nNow.", "\n") == [
        [],
        [ReasoningDelta("Hm")],
        [ReasoningDelta(" so.")],
        [],
        [TextDelta("Now.")],
        [],
    ]
    assert push(
        turn, builtin, "<tool_call>", '\n{"name": "look', '", "arg', 'uments": {"at": "', "desk", '"}', "}\n"
    ) == [
        [],
        [],
        [CallBegun(0, "look")],
        [CallArguments(0, '{"at": "')],
        [CallArguments(0, "desk")],
        [CallArguments(0, '"}')],
        [],
    ]
    assert push(turn, builtin, "</tool_call>", "\nDone", "<|im_end|>") == [
        [CallEnded(0, "ok")],
        [TextDelta("\n\nDone")],
        [],
    ]
    assert turn.message is None
    assert turn.end() == []
    assert turn.message is not None
    assert (turn.message.content, turn.message.closed) == ("Now.\n\nDone", True)


def test_pieces_of_one_push_come_together(builtin: ChatFormat) -> None:
    text = 'Now.<tool_call>{"name": "look", "arguments": {"at": [1, 2]}}</tool_call>'
    (deltas,) = push(TurnStream(builtin), builtin, text)
    assert deltas == [
        TextDelta("Now."),
        CallBegun(0, "look"),
        CallArguments(0, '{"at": [1, 2]}'),
        CallEnded(0, "ok"),
    ]


def test_a_character_waits_for_its_last_byte_and_blanks_for_what_follows(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin, opened=False)
    pushed = [turn.push([index]) for index in byte_ids(builtin, "a🤖 \u3000é\n".encode())]
    told = "|".join("".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) for deltas in pushed)
    assert told == "a||||🤖|||||| \u3000é|"
    assert turn.end() == []


def test_half_a_character_is_told_at_the_end(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin, opened=False)
    assert turn.push(byte_ids(builtin, b"a\xf0\x9f")) == [TextDelta("a")]
    assert turn.end() == [TextDelta("\ufffd")]


def test_text_waits_where_a_closer_could_make_it_reasoning(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin)
    assert push(turn, builtin, "Hm", " so.", "</think>", "Now.") == [
        [],
        [],
        [ReasoningDelta("Hm so.")],
        [TextDelta("Now.")],
    ]
    turn = TurnStream(builtin)
    assert push(turn, builtin, "Hm", " so.", "<tool_call>") == [[], [], [TextDelta("Hm so.")]]
    turn = TurnStream(builtin)
    assert push(turn, builtin, "Hm", " so.", "<|im_end|>") == [[], [], []]
    assert turn.end() == [TextDelta("Hm so.")]
    turn = TurnStream(builtin, opened=False)
    assert push(turn, builtin, "Hm", " so.", "</think>") == [
        [TextDelta("Hm")],
        [TextDelta(" so.")],
        [TextDelta("</think>")],
    ]
    turn = TurnStream(builtin, opened=True)
    assert push(turn, builtin, "Hm", "</think>", "a") == [[ReasoningDelta("Hm")], [], [TextDelta("a")]]


def test_a_prompt_shows_whether_it_opens_reasoning(builtin: ChatFormat) -> None:
    context = builtin.open([Message("user", "Go on. <think>")])
    assert not opens_reasoning(builtin, context.ids)
    opened = [*context.ids.tolist(), *builtin._tokenizer.encode("<think>\n").tolist()]
    assert opens_reasoning(builtin, opened)
    assert not opens_reasoning(builtin, [*opened, *builtin._tokenizer.encode("\n</think>\n\n").tolist()])


def test_only_the_last_stop_token_ends_a_turn(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin, opened=False)
    assert push(turn, builtin, "a", "<|im_end|>", "b", "<|im_end|>") == [
        [TextDelta("a")],
        [],
        [TextDelta("<|im_end|>b")],
        [],
    ]
    assert turn.end() == []


def test_a_broken_call_ends_with_what_is_wrong(builtin: ChatFormat) -> None:
    tools = [{"name": "look"}]
    cases: list[tuple[str, list[TurnDelta]]] = [
        (
            '{"name": "look", "arguments": {',
            [CallBegun(0, "look"), CallArguments(0, "{"), CallEnded(0, "invalid_json")],
        ),
        ('{"name": "jump"}', [CallBegun(0, "jump"), CallArguments(0, "{}"), CallEnded(0, "unknown_tool")]),
        ('{"arguments": {}}', [CallEnded(0, "missing_name")]),
        ("look()", [CallEnded(0, "invalid_json")]),
    ]
    for body, expected in cases:
        assert push(TurnStream(builtin, tools), builtin, f"<tool_call>{body}</tool_call>") == [expected]
        turn = TurnStream(builtin, tools)
        assert [*push(turn, builtin, f"<tool_call>{body}")[0], *turn.end()] == [
            *expected[:-1],
            CallEnded(0, "unclosed"),
        ]


def test_arguments_before_the_name_wait_for_it(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin)
    assert push(turn, builtin, '<tool_call>{"arguments": {"at": 1}', ', "name": "look"') == [
        [],
        [CallBegun(0, "look"), CallArguments(0, '{"at": 1}')],
    ]


def test_a_wrong_id_changes_nothing_and_the_end_comes_once(builtin: ChatFormat) -> None:
    turn = TurnStream(builtin, opened=False)
    with pytest.raises(InvalidIds):
        turn.push([*builtin.encode("a").tolist(), builtin.vocab_size])
    assert push(turn, builtin, "b") == [[TextDelta("b")]]
    assert turn.push([]) == []
    assert [turn.end(), turn.end()] == [[], []]
    with pytest.raises(ChatError, match="the turn has ended"):
        turn.push([])


def test_a_dialect_that_reads_whole_turns_tells_everything_at_the_end(
    builtin: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(builtin._reader.dialect), "early", lambda *_: None)
    turn = TurnStream(builtin)
    text = '<think>Hm.</think>Now.<tool_call>{"name": "look", "arguments": {"at": "\\u00e9"}}</tool_call>'
    assert push(turn, builtin, text, "<|im_end|>") == [[], []]
    assert turn.end() == [
        ReasoningDelta("Hm."),
        TextDelta("Now."),
        CallBegun(0, "look"),
        CallArguments(0, '{"at": "\\u00e9"}'),
        CallEnded(0, "ok"),
    ]


def test_what_models_templates_write_is_told_id_by_id(chat: ChatFormat) -> None:
    content = "" if chat.dialect == "deepseek" else "Déjà vu 🤖."
    arguments = {"at": "désk 🤖", "n": [1, {"deep": "}"}]}
    written = chat.write(Message("assistant", content, tool_calls=(ToolCall("look", arguments),)))
    turn = TurnStream(chat, opened=False)
    deltas = [delta for index in written.tolist() for delta in turn.push([index])] + turn.end()
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == content
    begun, *pieces, ended = [delta for delta in deltas if not isinstance(delta, TextDelta)]
    assert (begun, ended) == (CallBegun(0, "look"), CallEnded(0, "ok"))
    assert len(pieces) > 3
    assert json.loads("".join(piece.text for piece in pieces if isinstance(piece, CallArguments))) == arguments
