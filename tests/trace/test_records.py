"""Records refuse what cannot be, and say so."""

import pickle
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from agentgym_tok.errors import TraceError
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Edge, EpisodeHead, Failure, sent_digest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jump", None, 0), "unknown edge kind"),
        (("continuation", None, 1), "goes on from an earlier turn"),
        (("continuation", 1, 1), "goes on from an earlier turn"),
        (("compaction", 2, 1), "from an earlier turn to a later one"),
        (("compaction", -1, 1), "from an earlier turn to a later one"),
    ],
)
def test_impossible_edges_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Edge(*arguments)


def test_a_failure_names_one_of_the_six_boundaries() -> None:
    with pytest.raises(TraceError, match="policy, harness, world, tool, store, client"):
        Failure("network", "Timeout")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge": Edge("fresh_prompt", 0, 2)}, "the edge leads elsewhere"),
        ({"edge": Edge("retry", 1, 1)}, "a first attempt repeats nothing"),
        ({"attempt": -1}, "a first attempt repeats nothing"),
        ({"sent_digest": "abc"}, "no digest"),
        ({"sent_digest": "G" * 32}, "no digest"),
        ({"reward": float("nan")}, "not finite"),
        ({"ended": float("inf")}, "not finite"),
        ({"completion": {"origin": "observation"}}, "no policy's turn"),
    ],
)
def test_impossible_turns_are_refused(make: Any, change: dict[str, Any], message: str) -> None:
    if "completion" in change:
        change = {"completion": {**change["completion"], "logprobs_T": None, "logprobs": "missing"}}
    with pytest.raises(TraceError, match=message):
        make.turn("e", 1, make.prompt(1), [2], **change)


def test_an_episode_groups_with_itself_unless_told_otherwise() -> None:
    assert EpisodeHead("e", "t").group_id == "e"
    assert EpisodeHead("e", "t", group_id="g").group_id == "g"
    with pytest.raises(TraceError, match="an id of its own"):
        EpisodeHead("", "t")
    with pytest.raises(TraceError, match="an id of its own"):
        EpisodeHead("e", "t", parent="e")


def test_the_return_is_the_sum_of_used_rewards_and_steps_hold_used_attempts(make: Any) -> None:
    context = make.prompt(1)
    turns = [
        make.turn("e", 0, context, [1], used=False, reward=5.0),
        make.turn("e", 0, context, [2], attempt=1, reward=0.1, edge=Edge("retry", 0, 0)),
        make.turn("e", 1, context, [3], reward=0.2, edge=Edge("unknown", 0, 1), used=False),
        make.turn("e", 1, context, [4], reward=0.2, attempt=1, edge=Edge("retry", 1, 1), used=False),
    ]
    episode = make.episode(turns)
    assert episode.return_ == 0.1
    assert episode.steps == (turns[1], turns[3])
    assert episode.edges == tuple(turn.edge for turn in turns)


def test_sent_digest_names_the_same_ids_as_a_context_whatever_its_spans(make: Any) -> None:
    context = make.prompt(1, 2).extend(Span(np.array([3], np.int32), "observation"))
    assert sent_digest(context.root, context.ids) == context.digest
    assert sent_digest(context.root, np.array([1, 2, 4], np.int32)) != context.digest


def test_the_rich_turns_of_these_tests_leave_no_field_at_its_default(make: Any) -> None:
    """A field that a class gains must be stored too: this fails until the tests fill it."""
    first, second, third = make.rich_turns("e")
    message = first.messages[2]
    for records in (
        (first, second, third),
        (first.completion,),
        (message,),
        (message.tool_calls[0],),
        (second.edge, third.edge),
        (first.failure,),
    ):
        for part in fields(records[0]):
            default = part.default_factory() if part.default_factory is not MISSING else part.default
            values = [getattr(record, part.name) for record in records]
            filled = any(isinstance(value, np.ndarray) or value != default for value in values)
            assert filled or part.name in {"ids_exact", "origin", "redacted"}, part.name


def test_turns_and_episodes_travel_between_processes(make: Any) -> None:
    turns = make.rich_turns("e")
    episode = pickle.loads(pickle.dumps(make.episode(turns)))
    assert all(map(make.same_turn, episode.turns, turns))
    assert isinstance(episode.turns[0].context, Context)
