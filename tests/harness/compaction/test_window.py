"""Windows: the beginning and the end of a conversation, by their ids, and a word about what is gone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from play import Script
from scene import conversation, goes, play, turns_in

from agentgym_tok import ChatFormat, Message
from agentgym_tok.harness import Conversation, Rewrite, WindowCompaction

GAP = "[Earlier steps are left out here.]\n"


async def nobody(*given: Any, **more: Any) -> None:
    raise AssertionError("a window asks nobody")


def compacted(compaction: Any, conversation: Conversation) -> Rewrite | None:
    found: Rewrite | None = asyncio.run(compaction.compact(conversation, nobody))
    return found


def test_the_first_and_the_last_exchanges_keep_their_ids(chat: ChatFormat, tmp_path: Path) -> None:
    speaker = Script(lambda request: goes(chat, request))
    episode = play(tmp_path, chat, speaker, WindowCompaction(at_turns=5, keep=2), max_steps=8)
    (after,) = [turn for turn in episode.turns if turn.edge.kind == "compaction"]
    assert (after.index, after.edge.source, after.edge.reason) == (5, 4, "window")
    kept = [episode.turns[index] for index in (0, 3, 4)]
    assert [span.ids_T.tolist() for span in turns_in(after.context)] == [
        turn.completion.ids_T.tolist() for turn in kept
    ]
    text = chat.decode(after.context.ids)
    assert text.count(GAP.strip()) == 1
    assert [f"You are in room {number} now" in text for number in range(1, 6)] == [False, False, True, True, True]
    assert len(speaker.asked) == 8


def test_the_beginning_is_the_very_contexts_of_the_past(chat: ChatFormat) -> None:
    before = conversation(chat, *(chat.encode_turn(f"go to room {number}").tolist() for number in range(6)))
    rewrite = compacted(WindowCompaction(keep=1), before)
    assert rewrite is not None
    after = rewrite.conversation
    assert after.first is before.first
    assert after.exchanges[0].answered is before.exchanges[0].answered
    assert [exchange.said for exchange in after.exchanges] == [before.exchanges[0].said, before.exchanges[5].said]
    assert after.exchanges[0].messages == (Message("user", f"{GAP}You are in room 5."),)
    assert after.exchanges[1].messages == before.exchanges[5].messages
    # The context is what the chat format makes of the messages that it is said to stand for.
    again = chat.bridge(after.exchanges[0].answered, after.exchanges[0].messages)
    assert after.exchanges[0].context.ids.tolist() == again.ids.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(("turns", "keep"), [(0, 0), (1, 0), (2, 1), (3, 2), (3, 3), (2, 7)])
def test_where_nothing_would_go_nothing_is_rewritten(builtin: ChatFormat, turns: int, keep: int) -> None:
    before = conversation(builtin, *[builtin.encode_turn("go").tolist()] * turns)
    assert compacted(WindowCompaction(keep=keep), before) is None


def test_a_gap_is_told_once_however_often_something_is_left_out(chat: ChatFormat, tmp_path: Path) -> None:
    compaction = WindowCompaction(at_turns=2, keep=1)
    episode = play(tmp_path, chat, Script(lambda request: goes(chat, request)), compaction, max_steps=10)
    rewritten = [turn for turn in episode.turns if turn.edge.kind == "compaction"]
    assert len(rewritten) >= 3
    for turn in rewritten:
        assert chat.decode(turn.context.ids).count(GAP.strip()) == 1


def test_results_of_tools_keep_their_role_and_call(builtin: ChatFormat) -> None:
    before = conversation(builtin, *[builtin.encode_turn("go").tolist()] * 3)
    tool = Message("tool", "a lamp", tool_call_id="call0", name="look")
    anchor = before.exchanges[0]
    first = Conversation(builtin, before.first, before.opening).followed(
        anchor.answered,
        anchor.said,
        [tool],
        builtin.bridge(anchor.answered, [tool]),  # type: ignore[arg-type]
    )
    for exchange in before.exchanges[1:]:
        answered = first.context.extend(exchange.answered.span)
        bridged = builtin.bridge(answered, exchange.messages)
        first = first.followed(answered, exchange.said, exchange.messages, bridged)  # type: ignore[arg-type]
    rewrite = compacted(WindowCompaction(keep=1), first)
    assert rewrite is not None
    (said,) = rewrite.conversation.exchanges[0].messages
    assert (said.role, said.tool_call_id, said.name) == ("tool", "call0", "look")
    assert said.content == f"{GAP}You are in room 2."


def test_a_context_that_is_too_long_is_rewritten_before_the_next_turn(chat: ChatFormat, tmp_path: Path) -> None:
    """Without a limit of its own a compaction is due at three quarters of the longest context."""
    speaker = Script(lambda request: goes(chat, request))
    most = len(conversation(chat).first) + 260
    episode = play(tmp_path, chat, speaker, WindowCompaction(keep=1), max_steps=20, max_context=most)
    assert sum(turn.edge.kind == "compaction" for turn in episode.turns) >= 2
    assert max(len(turn.context) for turn in episode.turns) <= most
    assert episode.turns[-1].truncation == "steps"
