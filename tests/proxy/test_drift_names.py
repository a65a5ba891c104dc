"""Every edge, every refusal and every doubt has a name that clients know, and what goes on has none."""

from typing import Any, get_args

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.chat.bridge import Reason
from agentgym_tok.drift import DRIFT_CLASSES
from agentgym_tok.proxy.contexts import Prepared
from agentgym_tok.proxy.drafts import Draft, Evidence
from agentgym_tok.proxy.drift_names import completion_drift, prompt_drift, words_drift
from agentgym_tok.proxy.wire import Ask
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Edge, EdgeKind
from agentgym_tok.types import Completion, Message

CHAT = ChatFormat.builtin()
USER, ANSWER = Message("user", "Go on."), Message("assistant", "Well.")
EDITED = (USER, ANSWER, USER)
SILENT: tuple[EdgeKind, ...] = (
    "continuation",
    "fresh_prompt",
    "retry",
    "subagent_call",
    "subagent_return",
    "auxiliary",
)


def named(
    kind: EdgeKind, reason: str = "", *, place: int | None = 3, messages: tuple[Message, ...] = EDITED
) -> tuple[str, ...]:
    """Name the drift of a prompt whose conversation came from turn 0 in this way."""
    prepared = Prepared(CHAT.open(EDITED), messages, "", None, reason=reason)
    edge = Edge(kind, 0, 1, place=None if kind == "continuation" else place)
    return prompt_drift(
        Draft(Ask(protocol="openai_chat", model="m", messages=messages), Evidence(b""), 1, None, "", "", prepared, edge)
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("rerender", "retokenised"),
        ("compaction", "history_edit"),
        ("strip_reasoning", "reasoning_strip"),
        ("system_swap", "system_swap"),
        ("tools_change", "tools_swap"),
        ("unknown", "history_edit"),
    ],
)
def test_a_rewrite_has_the_name_of_what_was_rewritten(kind: EdgeKind, name: str) -> None:
    assert named(kind) == named(kind, "assistant_message") == (name,)


def test_every_edge_is_named_or_no_drift() -> None:
    assert {kind for kind in get_args(EdgeKind) if not named(kind)} == set(SILENT)


@pytest.mark.parametrize("reason", [*get_args(Reason), "ambiguous"])
def test_a_refused_bridge_has_the_name_of_its_cause(reason: str) -> None:
    others = {"other_opener": "stop_token", "ambiguous": "other", "assistant_message": "retokenised"}
    assert named("rerender", reason) == (others.get(reason, "template"),)


def test_what_keeps_all_ids_or_holds_no_answer_is_no_drift() -> None:
    assert named("rerender", "template_refuses", place=None) == ()
    assert named("unknown", messages=(USER,)) == ()
    assert named("system_swap", messages=(USER, USER)) == ()


def said(note: str = "", **fields: Any) -> Completion:
    return Completion(as_ids([1]), ids_exact=not note, note=note, **fields)


@pytest.mark.parametrize(
    ("completion", "names"),
    [
        (said(logprobs_T=[-1.0], logprobs="raw"), ()),
        (said(logprobs_T=[-1.0], logprobs="processed"), ()),
        (said(logprobs_T=[-9999.0], logprobs="sentinel"), ("logprob_misalignment",)),
        (said(), ("logprob_misalignment",)),
        (said("no ids"), ("stream_loss",)),
        (said("3 ids of 5 that were drawn"), ("stream_loss",)),
        (said("not as many log-probabilities as ids"), ("logprob_misalignment",)),
        (said("it stopped, and its last id is no stop token"), ("stop_token",)),
        (said("it goes on behind a stop string"), ("stop_token",)),
        (said("the log-probabilities are of other ids; no ids"), ("stream_loss", "logprob_misalignment")),
        (said("ids encoded from text"), ("retokenised",)),
        (said("the engine was tired"), ("other",)),
    ],
)
def test_a_turn_that_cannot_be_trained_says_why(completion: Completion, names: tuple[str, ...]) -> None:
    assert completion_drift(completion) == names
    assert set(names) <= set(DRIFT_CLASSES)


def test_an_engine_that_reads_other_ids_is_named_and_one_that_is_away_is_not() -> None:
    assert words_drift("the engine read other ids than were sent") == ("retokenised",)
    assert words_drift("the connection to the engine broke") == ()
