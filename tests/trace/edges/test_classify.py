from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.errors import FingerprintMismatch, TraceError
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import Edge, Turn, sent_digest
from agentgym_tok.trace.edges import lineage as lineage_module
from agentgym_tok.trace.edges.classify import FoundEdge, classify
from agentgym_tok.trace.edges.lineage import Lineage
from agentgym_tok.types import Completion, Message, ToolCall

TASK = {"name": "task", "parameters": {"prompt": "string"}}
LOOK = {"name": "look", "parameters": {"at": "string"}}
HELPER = Message("system", "You help.")
SYSTEM = Message("system", "You keep a house in order.")
FIRST = Message("user", "Put the red mug from the kitchen on the desk upstairs.")


def call(name: str, **arguments: Any) -> str:
    spelled = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{spelled}}}}}\n</tool_call>'


@dataclass
class Session:
    """An unmodified agent behind a proxy: it sends whole conversations, and the edges are found out."""

    chat: ChatFormat
    lineage: Lineage = field(init=False)
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lineage = Lineage(self.chat.parse)

    def find(self, conversation: Sequence[Message], tools: Sequence[Any] = (), **fields: Any) -> FoundEdge:
        return classify(self.lineage, self.chat.open(conversation, tools), conversation, **fields)

    def ask(
        self,
        conversation: Sequence[Message],
        answer: str | np.ndarray,
        tools: Sequence[Any] = (),
        *,
        context: Context | None = None,
        used: bool = True,
    ) -> FoundEdge:
        context = context or self.chat.open(conversation, tools)
        found = classify(self.lineage, context, conversation)
        ids = self.chat.encode_turn(answer) if isinstance(answer, str) else answer
        goes_on = found.edge.kind == "continuation"
        known = len(self.lineage.conversation(found.edge.source or 0)) + 1 if goes_on else 0
        turn = Turn(
            "e",
            found.edge.target,
            context,
            sent_digest(context.root, context.ids),
            Completion(np.array(ids, np.int32)),
            found.edge,
            tuple(conversation[known:]),
            self.chat.decode(ids),
            attempt=found.attempt,
            used=used,
        )
        self.lineage.add(turn)
        self.turns.append(turn)
        return found

    def answer(self, place: int = -1) -> Message:
        return self.chat.parse(self.turns[place].completion.ids_T).message()

    def grow(self, steps: int, tools: Sequence[Any] = (LOOK,), *, think: bool = False) -> list[Message]:
        """Play a conversation of several turns and return it, the last answer and its result included."""
        conversation = [SYSTEM, FIRST]
        for step in range(steps):
            thought = f"<think>\nWhere could the mug number {step} be?\n</think>\n\n" if think else ""
            self.ask(conversation, f"{thought}I look at shelf {step}.\n{call('look', at=f'shelf {step}')}", tools)
            result = Message("tool", f"On shelf {step} there are {step + 2} plates and a very old vase.", name="look")
            conversation = [*conversation, self.answer(), result]
        return conversation


def letters(session: Session, text: str) -> list[int]:
    """Spell a text as no tokenizer would."""
    return [index for letter in text for index in session.chat.encode(letter).tolist()]


def first_difference(session: Session, source: int, context: Context) -> int | None:
    turn = session.turns[source]
    for place, (one, other) in enumerate(
        zip([*turn.context.ids.tolist(), *turn.completion.ids_T.tolist()], context.ids.tolist(), strict=False)
    ):
        if one != other:
            return place
    return None


@pytest.fixture
def session(builtin: ChatFormat) -> Session:
    return Session(builtin)


def said(found: FoundEdge) -> tuple[str, int | None, int, int]:
    edge = found.edge
    assert not edge.declared
    return edge.kind, edge.source, edge.target, found.attempt


# ---- by ids


def test_the_first_turn_of_a_session_is_a_fresh_prompt(session: Session) -> None:
    assert said(session.find([SYSTEM, FIRST])) == ("fresh_prompt", None, 0, 0)


def test_a_conversation_goes_on_from_the_longest_turn_it_begins_with(session: Session) -> None:
    conversation = session.grow(3)
    found = session.find(conversation, [LOOK])
    assert said(found) == ("continuation", 2, 3, 0)
    assert (found.edge.reason, found.edge.place, found.alternatives) == ("", None, ())
    assert said(session.find([*conversation[:3], Message("user", "Stop.")], [LOOK])) == ("continuation", 0, 3, 0)


def test_ids_decide_even_where_messages_look_otherwise(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    turn = session.turns[0]
    context = session.chat.bridge(turn.context.sampled(turn.completion.ids_T), [Message("user", "Go on.")])
    assert isinstance(context, Context)
    conversation = [SYSTEM, FIRST, Message("assistant", "Something else entirely."), Message("user", "Go on.")]
    assert said(classify(session.lineage, context, conversation)) == ("continuation", 0, 1, 0)


def test_the_last_turn_once_more_is_another_attempt_and_an_older_one_a_new_turn(session: Session) -> None:
    conversation = session.grow(1)
    session.ask(conversation, "I see it.", [LOOK], used=False)
    found = session.ask(conversation, "I see nothing.", [LOOK])
    assert said(found) == ("retry", 1, 1, 1)
    assert said(session.find(conversation, [LOOK])) == ("retry", 1, 1, 2)
    assert said(session.find([SYSTEM, FIRST], [LOOK])) == ("retry", 0, 2, 0)
    assert found.edge.place is None


def test_feedback_after_a_bad_answer_is_a_continuation(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Hm.")
    conversation = [SYSTEM, FIRST, session.answer(), Message("user", "That was no action. Try again.")]
    assert said(session.find(conversation)) == ("continuation", 0, 1, 0)


def test_parallel_samples_with_the_same_ids_make_no_difference_and_are_named(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    session.ask([SYSTEM, FIRST, session.answer(), Message("user", "Go on.")], "Done.")
    session.ask([SYSTEM, FIRST], "Yes.", used=False)
    assert said(session.find([SYSTEM, FIRST])) == ("retry", 2, 2, 1)
    found = session.find([SYSTEM, FIRST, session.answer(), Message("user", "Stop.")])
    assert said(found) == ("continuation", 0, 3, 0)
    assert "turn 2 has the same ids" in found.edge.reason
    assert [edge.source for edge in found.alternatives] == [2]


def test_what_goes_on_from_an_unused_attempt_is_no_continuation(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes, I will do that.", used=False)
    unused = session.answer()
    session.ask([SYSTEM, FIRST], "Yes, or rather not.")
    conversation = [SYSTEM, FIRST, unused, Message("user", "Go on.")]
    found = session.find(conversation)
    assert said(found) == ("unknown", 0, 1, 0)
    assert "attempt 0 of turn 0, which is not the used one" in found.edge.reason
    assert found.edge.place == first_difference(session, 1, session.chat.open(conversation))


def test_an_empty_answer_is_gone_on_from_only_where_a_message_says_that_it_was_given(session: Session) -> None:
    session.ask([SYSTEM, FIRST], np.array([], np.int32))
    spoken = [SYSTEM, FIRST, Message("assistant", "Never sampled."), Message("user", "Go on.")]
    silent = [SYSTEM, FIRST, Message("assistant", ""), Message("user", "Go on.")]
    assert said(session.find(spoken))[:2] == ("unknown", None)
    assert said(session.find(silent)) == ("continuation", 0, 1, 0)


def test_an_answer_that_was_cut_off_is_gone_on_from(session: Session) -> None:
    session.ask([SYSTEM, FIRST], session.chat.encode_turn("I was about to")[:-1])
    assert said(session.find([SYSTEM, FIRST, session.answer(), Message("user", "Go on.")])) == ("continuation", 0, 1, 0)


def test_a_message_that_the_next_answer_is_to_begin_with_is_no_answer(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    conversation = [SYSTEM, FIRST, session.answer(), Message("user", "Go on.")]
    turn, news = session.turns[0], conversation[-1:]
    context = session.chat.bridge(turn.context.sampled(turn.completion.ids_T), news)
    assert isinstance(context, Context)
    begun = context.extend(Span(session.chat.encode("I go"), "forced"))
    prefilled = [*conversation, Message("assistant", "I go")]
    assert said(classify(session.lineage, begun, prefilled)) == ("continuation", 0, 1, 0)
    assert session.find([Message("system", "Hurry."), *prefilled[1:]]).edge.kind == "system_swap"


def test_other_tools_that_no_id_shows_are_told(builtin: ChatFormat) -> None:
    session = Session(builtin)
    session.ask([SYSTEM, FIRST], "Yes.")
    conversation = [SYSTEM, FIRST, session.answer(), Message("user", "Go on.")]
    ids = builtin.open(conversation).ids
    blind = Context(Root(builtin.fingerprint, builtin.vocab_size, (LOOK,)), Span(ids, "prompt"))
    found = classify(session.lineage, blind, conversation)
    assert said(found) == ("continuation", 0, 1, 0)
    assert "the tools are others" in found.edge.reason


# ---- rewrites


def moved(session: Session, conversation: Sequence[Message], source: int, tools: Sequence[Any] = (LOOK,)) -> FoundEdge:
    """Find an edge and hold its place against a slow count."""
    found = session.find(conversation, tools)
    assert found.edge.place == first_difference(session, source, session.chat.open(conversation, tools))
    assert found.edge.place is not None
    return found


def test_reasoning_that_is_gone_is_a_strip_from_its_first_token_on(session: Session) -> None:
    conversation = session.grow(3, think=True)
    bare = [replace(message, reasoning=None) for message in conversation]
    found = moved(session, bare, 2)
    assert said(found) == ("strip_reasoning", 2, 3, 0)
    assert found.edge.place == len(session.turns[0].context)
    assert found.edge.reason == "the reasoning of turn 0 is gone"
    late = [replace(message, reasoning=None) if place == 4 else message for place, message in enumerate(conversation)]
    assert moved(session, late, 2).edge.reason == "the reasoning of turn 1 is gone"


def test_an_empty_block_instead_of_the_reasoning_is_a_strip(session: Session) -> None:
    chat = session.chat
    session.ask([SYSTEM, FIRST], "<think>\nWhere could it be?\n</think>\n\nUpstairs.")
    conversation = [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")]
    emptied = chat.open(conversation).ids.tolist()
    start = len(session.turns[0].context)
    block = chat.encode_turn("<think>\n\n</think>\n\n")[:-1].tolist()
    context = Context(
        Root(chat.fingerprint, chat.vocab_size), Span([*emptied[:start], *block, *emptied[start:]], "prompt")
    )
    found = classify(session.lineage, context, conversation)
    assert said(found) == ("strip_reasoning", 0, 1, 0)
    assert found.edge.place == first_difference(session, 0, context)


def test_a_beginning_that_is_gone_is_no_strip_where_it_was_no_reasoning(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "I think so. Upstairs.")
    conversation = [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")]
    assert session.find(conversation).edge.kind == "unknown"


def test_reasoning_that_is_gone_while_the_rest_has_other_ids_is_a_rerender(session: Session) -> None:
    encode = session.chat.encode_turn
    ids = [*encode("<think>\nWhere?\n</think>\n\n")[:-1], *letters(session, "Upstairs."), *encode("")]
    session.ask([SYSTEM, FIRST], np.array(ids, np.int32))
    found = moved(session, [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")], 0, ())
    assert said(found) == ("rerender", 0, 1, 0)
    assert "and reasoning is gone" in found.edge.reason


def test_a_turn_with_other_ids_of_the_same_text_is_a_rerender_at_that_token(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    conversation = [SYSTEM, FIRST, session.answer(), Message("user", "Where?")]
    session.ask(conversation, np.array([*letters(session, "Upstairs."), *session.chat.encode_turn("")], np.int32))
    found = moved(session, [*conversation, session.answer(), Message("user", "Go on.")], 1, ())
    assert said(found) == ("rerender", 1, 2, 0)
    inside = (found.edge.place or 0) - len(session.turns[1].context)
    assert 0 <= inside < len("Upstairs.")
    assert found.edge.reason == f"the answer of turn 1 has other ids from its token {inside} on"


def test_arguments_and_blanks_that_are_written_otherwise_are_a_rerender(session: Session) -> None:
    session.ask(
        [SYSTEM, FIRST], '<tool_call>\n{"name":"look","arguments":{"at":"desk","deep":false}}\n</tool_call>', [LOOK]
    )
    quoted = Message("assistant", "", tool_calls=(ToolCall("look", {"at": "desk", "deep": False}, "call_1"),))
    conversation = [SYSTEM, replace(FIRST, content=FIRST.content + "\n"), quoted, Message("tool", "A mug.")]
    assert said(moved(session, conversation, 0)) == ("rerender", 0, 1, 0)
    assert moved(session, conversation, 0).edge.reason == "the prompt of turn 0 has other ids"


def test_the_same_messages_with_other_ids_come_from_the_turn_that_was_asked_with_them(session: Session) -> None:
    conversation = session.grow(2)
    again = [SYSTEM, replace(FIRST, content=FIRST.content + "\n\n"), *conversation[2:-2]]
    assert said(moved(session, again, 1)) == ("rerender", 1, 2, 0)
    assert said(moved(session, again[:2], 0)) == ("rerender", 0, 2, 0)


def test_a_history_kept_as_text_is_the_same_history(session: Session) -> None:
    text = f"<think>\nWhere?\n</think>\n\nI look.\n{call('look', at='desk')}"
    session.ask([SYSTEM, FIRST], text, [LOOK])
    swapped = Message("system", "You tidy up.")
    conversation = [swapped, FIRST, Message("assistant", text), Message("user", "A mug.")]
    assert said(moved(session, conversation, 0)) == ("system_swap", 0, 1, 0)
    cut = [swapped, FIRST, Message("assistant", text[:-25]), Message("user", "A mug.")]
    assert session.find(cut, [LOOK]).edge.kind == "unknown"


def test_other_system_messages_are_a_swap(session: Session) -> None:
    conversation = session.grow(2)
    found = moved(session, [Message("system", "It is 9 o'clock."), *conversation[1:]], 1)
    assert said(found) == ("system_swap", 1, 2, 0)
    assert said(moved(session, conversation[1:], 1)) == ("system_swap", 1, 2, 0)
    more = [SYSTEM, Message("developer", "Hurry."), *conversation[1:]]
    assert said(moved(session, more, 1)) == ("system_swap", 1, 2, 0)


def test_other_tools_are_a_tools_change(session: Session) -> None:
    conversation = session.grow(2)
    assert said(moved(session, conversation, 1, (LOOK, TASK))) == ("tools_change", 1, 2, 0)
    assert said(moved(session, conversation, 1, ())) == ("tools_change", 1, 2, 0)
    assert said(moved(session, conversation, 1, ({**LOOK, "description": "new"},))) == ("tools_change", 1, 2, 0)


def test_of_two_changes_the_system_message_names_the_edge_and_both_are_told(session: Session) -> None:
    conversation = session.grow(2, think=True)
    both = [Message("system", "Hurry."), *(replace(message, reasoning=None) for message in conversation[1:])]
    found = moved(session, both, 1, (TASK,))
    assert said(found) == ("system_swap", 1, 2, 0)
    assert found.edge.reason == "the system messages are others and the tools are others"


def test_one_first_prompt_under_two_system_messages_may_be_two_agents(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    found = session.find([Message("system", "Hurry."), FIRST])
    assert said(found) == ("unknown", None, 1, 0)
    assert "the prompt of turn 0, but the system messages are others" in found.edge.reason


@pytest.mark.parametrize("kept", [0, 1])
def test_a_window_is_a_compaction(session: Session, kept: int) -> None:
    conversation = session.grow(4)
    found = moved(session, [*conversation[: 1 + kept], *conversation[-4:]], 3)
    assert said(found) == ("compaction", 3, 4, 0)
    assert found.edge.reason == f"{5 - kept} messages are gone at message {1 + kept}"


def test_a_summary_is_a_compaction_from_the_turn_that_wrote_it(session: Session) -> None:
    conversation = session.grow(3)
    asked = [*conversation, Message("user", "Summarise what you did.")]
    session.ask(asked, "The mug stood on none of the three shelves.", [LOOK])
    summary = Message("user", f"So far: {session.answer().content}")
    for rest in ([SYSTEM, summary], [SYSTEM, FIRST, summary], [SYSTEM, FIRST, summary, *conversation[-2:]]):
        found = moved(session, rest, 3)
        assert said(found) == ("compaction", 3, 4, 0)
        assert "an earlier answer stands for" in found.edge.reason
    assert session.find([Message("system", "You are a judge."), summary], [LOOK]).edge.kind == "unknown"


def test_a_summary_that_nobody_sampled_still_is_a_compaction_between_what_was_kept(session: Session) -> None:
    conversation = session.grow(4)
    found = moved(session, [*conversation[:2], Message("user", "You looked at shelves."), *conversation[-2:]], 3)
    assert said(found) == ("compaction", 3, 4, 0)
    assert found.edge.reason == "6 messages are gone at message 2, 1 others stand for them"
    told = Message("user", "You looked at shelves.")
    assert session.find([*conversation[:2], told], [LOOK]).edge.kind == "unknown"
    assert session.find([SYSTEM, told, *conversation[-2:]], [LOOK]).edge.kind == "unknown"


def test_tool_results_whose_contents_are_gone_are_a_compaction(session: Session) -> None:
    conversation = session.grow(4)
    cleared = [replace(one, content="(cleared)") if place in (3, 7) else one for place, one in enumerate(conversation)]
    found = moved(session, cleared, 3)
    assert said(found) == ("compaction", 3, 4, 0)
    assert found.edge.reason == "the contents of 2 tool results are gone from message 3 on"
    longer = [replace(one, content=one.content * 2) if place == 3 else one for place, one in enumerate(conversation)]
    assert session.find(longer, [LOOK]).edge.kind == "unknown"


def test_a_history_that_somebody_edited_is_unknown_and_the_message_is_named(session: Session) -> None:
    conversation = session.grow(3)
    edits = {1: replace(FIRST, content="Put it away."), 4: Message("assistant", "I look at nothing.")}
    for number, edited in edits.items():
        changed = [edited if place == number else message for place, message in enumerate(conversation)]
        found = moved(session, changed, 2)
        assert said(found) == ("unknown", 2, 3, 0)
        assert f"message {number} is not what it was" in found.edge.reason
    last = [*conversation[:-2], Message("assistant", "I dance."), conversation[-1]]
    found = session.find(last, [LOOK])
    assert said(found) == ("unknown", 1, 3, 0)  # all ids of turn 1 are there, and behind them an answer of no turn
    assert "message 6 is no answer of this session" in found.edge.reason
    assert found.edge.place is None
    swapped = [Message("system", "Hurry."), *last[1:]]
    assert "message 6 is no answer of this session" in moved(session, swapped, 1).edge.reason
    put_in = [*conversation[:2], Message("user", "Hurry."), *conversation[2:]]
    assert "messages were put into turn 2's conversation at message 2" in moved(session, put_in, 2).edge.reason


def test_the_end_of_a_conversation_under_another_system_message_may_be_shown_to_a_critic(session: Session) -> None:
    conversation = session.grow(3)
    found = moved(session, [Message("system", "You are a critic."), *conversation[-2:]], 2)
    assert said(found) == ("unknown", 2, 3, 0)


def test_a_rewrite_of_two_equal_histories_comes_from_neither(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Upstairs.")
    session.ask([SYSTEM, FIRST, session.answer(), Message("user", "Where?")], "There.")
    session.ask([SYSTEM, FIRST], np.array([*letters(session, "Upstairs."), *session.chat.encode_turn("")], np.int32))
    found = session.find([Message("system", "Hurry."), FIRST, session.answer(), Message("user", "Go on.")])
    assert said(found) == ("system_swap", None, 3, 0)
    assert [edge.source for edge in found.alternatives] == [0, 2]
    assert found.edge.reason.endswith("from turn 0 or 2")


def test_the_turn_that_leaves_least_to_explain_is_the_source(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    longer = [SYSTEM, FIRST, session.answer(), Message("user", "Really?")]
    session.ask(longer, "Yes.")
    hurry, news = Message("system", "Hurry."), Message("user", "Go on.")
    assert said(moved(session, [hurry, *longer[1:3], news], 0, ())) == ("system_swap", 0, 2, 0)
    assert said(moved(session, [hurry, *longer[1:], session.answer(), news], 1, ())) == ("system_swap", 1, 2, 0)


def test_of_sources_that_leave_different_things_to_explain_only_an_explained_one_counts(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "I will.")
    session.ask([SYSTEM, FIRST, session.answer(), Message("user", "Really?")], "Yes.")
    session.ask([Message("system", "Answer with a word."), FIRST], "Yes.")
    told, news = Message("user", "You had doubts."), Message("user", "Go on.")
    assert said(moved(session, [SYSTEM, FIRST, told, session.answer(), news], 1, ())) == ("compaction", 1, 3, 0)
    assert session.find([SYSTEM, FIRST, session.answer(), news]).edge.kind == "unknown"


def test_blanks_that_a_template_trims_are_no_reasoning(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "\n\nUpstairs.")
    conversation = [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")]
    assert said(moved(session, conversation, 0, ())) == ("rerender", 0, 1, 0)


def test_reasoning_that_was_cut_off_leaves_nothing_and_belongs_to_its_own_conversation(session: Session) -> None:
    session.ask([SYSTEM, FIRST], session.chat.encode_turn("<think>\nWhere could it be, I wonder")[:-1])
    silent = [SYSTEM, FIRST, Message("assistant", ""), Message("user", "Go on.")]
    assert said(moved(session, silent, 0, ())) == ("strip_reasoning", 0, 1, 0)
    session.ask(silent, "Upstairs, then.")
    spelled = np.array([*letters(session, "Upstairs."), *session.chat.encode_turn("")], np.int32)
    session.ask([SYSTEM, FIRST], spelled)
    spoken = [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")]
    assert said(moved(session, spoken, 2, ())) == ("rerender", 2, 3, 0)


def test_words_instead_of_the_reasoning_are_no_strip(session: Session) -> None:
    chat = session.chat
    session.ask([SYSTEM, FIRST], "<think>\nWhere could it be?\n</think>\n\nUpstairs.")
    conversation = [SYSTEM, FIRST, Message("assistant", "Upstairs."), Message("user", "Go on.")]
    rendered, start = chat.open(conversation).ids.tolist(), len(session.turns[0].context)
    ids = np.array([*rendered[:start], *chat.encode("no ").tolist(), *rendered[start:]], np.int32)
    context = Context(Root(chat.fingerprint, chat.vocab_size), Span(ids, "prompt"))
    assert classify(session.lineage, context, conversation).edge.kind == "rerender"


def test_a_tool_result_is_no_summary(session: Session) -> None:
    conversation = session.grow(4)
    session.ask([HELPER, Message("user", "Count the plates.")], "There are fourteen plates on four shelves.", [TASK])
    result = Message("tool", session.answer().content)
    found = moved(session, [*conversation[:2], result, *conversation[-2:]], 3)
    assert said(found) == ("compaction", 3, 5, 0)


# ---- new conversations

PROMPT = "Search all drawers of the bedroom for the red mug."


def start_subagent(session: Session, prompt: str = PROMPT, calls: int = 1) -> list[Message]:
    session.ask([SYSTEM, FIRST], "\n".join([call("task", prompt=prompt)] * calls), [TASK])
    return [HELPER, Message("user", f"Your task: {prompt}")]


def test_a_prompt_that_stands_in_a_call_opens_a_subagent(session: Session) -> None:
    opened = start_subagent(session)
    found = session.ask(opened, "I open drawer 1.", [LOOK])
    assert said(found) == ("subagent_call", 0, 1, 0)
    assert found.edge.place == first_difference(session, 0, session.turns[1].context)
    in_system = [Message("system", f"Do this: {PROMPT}"), Message("user", "Begin.")]
    assert said(session.find(in_system, [LOOK])) == ("subagent_call", 0, 2, 0)
    assert session.find([HELPER, Message("user", "Your task: Search all drawers")], [LOOK]).edge.kind == "unknown"


def test_a_short_prompt_opens_a_subagent_only_where_it_is_the_whole_message(session: Session) -> None:
    start_subagent(session, "Find it.")
    assert session.find([HELPER, Message("user", "Find it.")], [LOOK]).edge.kind == "subagent_call"
    assert session.find([HELPER, Message("user", "Try. Find it. Now.")], [LOOK]).edge.kind == "unknown"


def test_an_answer_that_returns_is_told_in_a_continuation(session: Session) -> None:
    opened = start_subagent(session)
    session.ask(opened, "I look.", [LOOK])
    conversation = [*opened, session.answer(), Message("tool", "Empty.")]
    session.ask(conversation, "The mug lies in the third drawer.", [LOOK])
    caller = session.answer(0)
    found = session.find([SYSTEM, FIRST, caller, Message("tool", "The mug lies in the third drawer.")], [TASK])
    assert said(found) == ("continuation", 0, 3, 0)
    assert found.edge.reason == "the answer of turn 2 returns"
    other = session.find([SYSTEM, FIRST, caller, Message("tool", "No such agent.")], [TASK])
    assert other.edge.reason == ""


def test_parallel_subagents_with_one_prompt_are_not_taken_for_a_retry(session: Session) -> None:
    opened = start_subagent(session, calls=2)
    session.ask(opened, "Drawer 1.", [LOOK])
    found = session.ask(opened, "Drawer 2.", [LOOK])
    assert said(found) == ("unknown", None, 2, 0)
    assert {edge.kind for edge in found.alternatives} == {"retry", "subagent_call"}
    assert said(session.find(opened, [LOOK])) == ("retry", 2, 2, 1)  # both calls are served


def test_a_subagent_belongs_to_the_call_that_still_waits(session: Session) -> None:
    opened = start_subagent(session)
    conversation = [SYSTEM, FIRST, session.answer(), Message("tool", "Nothing.")]
    session.ask(conversation, call("task", prompt=PROMPT), [TASK])
    assert said(session.find(opened, [LOOK])) == ("subagent_call", 1, 2, 0)


def test_a_subagent_that_two_turns_wait_for_comes_from_neither(session: Session) -> None:
    opened = start_subagent(session)
    session.ask([SYSTEM, Message("user", "Now the other house.")], call("task", prompt=PROMPT), [TASK])
    found = session.find(opened, [LOOK])
    assert said(found) == ("subagent_call", None, 2, 0)
    assert [edge.source for edge in found.alternatives] == [0, 1]


def test_a_side_call_has_no_tools_and_quotes_the_conversation(session: Session) -> None:
    session.grow(2)
    title = Message("system", "Give this conversation a title.")
    found = session.find([title, Message("user", f"<text>{FIRST.content}</text>")])
    assert said(found) == ("auxiliary", 1, 2, 0)
    assert session.find([title, Message("user", "Give me a title.")]).edge.kind == "unknown"
    assert session.find([title, Message("user", f"<text>{FIRST.content}</text>")], [TASK]).edge.kind == "unknown"
    session.ask([title, FIRST], "Mug on desk")
    again = session.find([title, Message("user", "And now?")])
    assert said(again) == ("auxiliary", 2, 3, 0)  # it quotes nothing, but asks as that one did


def test_a_title_in_a_session_without_tools_is_unknown(session: Session) -> None:
    session.grow(2, ())
    found = session.find([Message("system", "Give this a title."), Message("user", f"<text>{FIRST.content}</text>")])
    assert found.edge.kind == "unknown"


def test_one_prompt_a_step_is_a_fresh_prompt_each_time(session: Session) -> None:
    session.ask([SYSTEM, Message("user", "You see a door.")], "Open the door to the north.")
    history = Message("user", "You did: Open the door to the north. You see a hall.")
    found = session.ask([SYSTEM, history], "Go on.")
    assert said(found) == ("fresh_prompt", 0, 1, 0)
    assert found.edge.place == first_difference(session, 0, session.turns[1].context)
    assert said(session.find([SYSTEM, Message("user", "You see a mug.")])) == ("fresh_prompt", 1, 2, 0)
    assert session.find([HELPER, Message("user", "You see a mug.")]).edge.kind == "unknown"
    same = session.find([SYSTEM, history])
    assert said(same) == ("unknown", None, 2, 0)  # resampled, or a world that says the same twice
    assert {edge.kind for edge in same.alternatives} == {"retry", "fresh_prompt"}


def test_a_new_prompt_beside_a_conversation_that_went_on_is_unknown(session: Session) -> None:
    session.grow(2)
    assert session.find([SYSTEM, Message("user", "Something new.")], [LOOK]).edge.kind == "unknown"


def test_a_prompt_that_two_rules_explain_is_unknown_and_names_both(session: Session) -> None:
    session.ask([SYSTEM, FIRST], call("task", prompt=FIRST.content), [TASK])
    found = session.find([HELPER, FIRST])
    assert said(found) == ("unknown", None, 1, 0)
    assert [edge.kind for edge in found.alternatives] == ["subagent_call", "auxiliary"]
    assert all(f"{kind} (" in found.edge.reason for kind in ("subagent_call", "auxiliary"))


def test_answers_of_another_session_explain_nothing(session: Session) -> None:
    session.ask([SYSTEM, FIRST], "Yes.")
    foreign = [SYSTEM, FIRST, Message("assistant", "No."), Message("user", "Go on.")]
    found = session.find(foreign)
    assert said(found) == ("unknown", None, 1, 0)
    assert found.edge.reason == "its answers are none of this session"
    assert "nobody says which messages" in classify(session.lineage, session.chat.open(foreign), ()).edge.reason


# ---- declared edges


def test_a_declared_edge_wins_and_gets_its_place(session: Session) -> None:
    conversation = session.grow(2)
    declared = Edge("compaction", 1, 2, "the budget")
    found = session.find([SYSTEM, Message("user", "Go.")], [LOOK], declared=declared)
    place = first_difference(session, 1, session.chat.open([SYSTEM, Message("user", "Go.")], [LOOK]))
    assert found == FoundEdge(replace(declared, place=place))
    assert session.find(conversation, [LOOK], declared=Edge("auxiliary", None, 2)).edge == Edge("auxiliary", None, 2)
    assert session.find(conversation, [LOOK], declared=Edge("continuation", 1, 2)).edge == Edge("continuation", 1, 2)
    assert session.find(conversation[:-2], [LOOK], declared=Edge("retry", 1, 1)) == FoundEdge(Edge("retry", 1, 1), 1)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Edge("continuation", 0, 2), "do not go on.*leave it at token"),
        (Edge("continuation", 1, 2), "do not go on.*leave it at token"),
        (Edge("retry", 1, 1), "another attempt repeats"),
        (Edge("retry", 0, 0), "leads elsewhere"),
        (Edge("compaction", 1, 3), "leads elsewhere"),
        (Edge("compaction", 2, 2), "leads elsewhere"),
        (Edge("fresh_prompt", None, 0), "leads elsewhere"),
    ],
)
def test_a_declared_edge_that_the_ids_contradict_is_refused(session: Session, declared: Edge, message: str) -> None:
    session.grow(2)
    with pytest.raises(TraceError, match=message):
        session.find([SYSTEM, Message("user", "Go.")], [LOOK], declared=declared)


def test_a_context_that_ends_inside_its_source_is_no_continuation(session: Session) -> None:
    session.grow(2)
    with pytest.raises(TraceError, match="do not go on"):
        session.find([SYSTEM, FIRST], [LOOK], declared=Edge("continuation", 1, 2))


# ---- the session


def test_a_session_has_one_chat_format(session: Session) -> None:
    session.grow(1)
    other = Context(Root("f" * 64, 5000), Span(np.array([1, 2], np.int32), "prompt"))
    with pytest.raises(FingerprintMismatch, match="one session"):
        classify(session.lineage, other, [FIRST])
    with pytest.raises(FingerprintMismatch, match="one session"):
        session.lineage.add(replace(session.turns[0], context=other, index=1, edge=Edge("unknown", None, 1)))


def test_turns_come_in_order(session: Session) -> None:
    session.grow(2)
    late = replace(session.turns[0], index=3, edge=Edge("unknown", None, 3))
    with pytest.raises(TraceError, match="out of order"):
        session.lineage.add(late)
    with pytest.raises(TraceError, match="there is no such turn"):
        session.lineage.conversation(2)
    fresh = Lineage(session.chat.parse)
    with pytest.raises(TraceError, match="out of order"):
        fresh.add(session.turns[1])


def test_a_conversation_is_put_together_from_news_and_answers(session: Session) -> None:
    conversation = session.grow(3, think=True)
    asked = session.lineage.conversation(2)
    assert [message.role for message in asked] == [message.role for message in conversation[:-2]]
    assert [message.content for message in asked] == [message.content for message in conversation[:-2]]
    assert [len(turn.messages) for turn in session.turns] == [2, 1, 1]


def test_a_long_conversation_compares_its_ids_once_a_turn(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    equal = lineage_module._equal

    def count(one_T: np.ndarray, other_T: np.ndarray) -> bool:
        nonlocal compared
        compared += min(len(one_T), len(other_T))
        return equal(one_T, other_T)

    monkeypatch.setattr(lineage_module, "_equal", count)
    session.grow(40)
    ids = sum(len(turn.context) for turn in session.turns)
    assert compared <= ids
    # Where the harness extends contexts, their shared past is known to be the same without a look.
    shared, compared = Session(session.chat), 0
    shared.ask([SYSTEM, FIRST], "Go.")
    for _ in range(40):
        turn, news = shared.turns[-1], Message("user", "And now?")
        context = shared.chat.bridge(turn.context.sampled(turn.completion.ids_T), [news])
        assert isinstance(context, Context)
        conversation = [*shared.lineage.conversation(turn.index), shared.answer(), news]
        assert said(shared.ask(conversation, "Go.", context=context))[:2] == ("continuation", turn.index)
    assert compared <= sum(len(turn.completion.ids_T) for turn in shared.turns)
