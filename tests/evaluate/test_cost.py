"""Costs: tokens and seconds, counted from what the trace says."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.evaluate.cost import CostCounter, busy
from agentgym_tok.harness import Harness
from agentgym_tok.types import Completion, Request

CHAT = ChatFormat.builtin()


def play(prompting: str = "transcript") -> tuple[CostCounter, list[Request]]:
    asked: list[Request] = []

    def looks(ids_T: np.ndarray, request: Request) -> Completion:
        asked.append(request)
        ids = CHAT.encode_turn("<action>look</action>")
        versions = ((f"v{len(asked)}", 0, len(ids)),)
        return Completion(ids, engine=f"toy {len(asked) % 2}", weight_versions=versions, sampling=request.sampling)

    counter = CostCounter()
    episode = Harness(looks, CHAT).run(ALFWorldEnv(CHAT, max_steps=4, prompting=prompting), task=0)
    counter.add(episode, "home")
    return counter, asked


def test_tokens_are_counted_by_engine() -> None:
    counter, asked = play()
    odd, even = counter.costs()
    assert (odd.part, odd.engine, even.engine) == ("home", "toy 1", "toy 0")
    assert (odd.turns, even.turns) == (2, 2)
    assert odd.prompt_tokens + even.prompt_tokens == sum(len(request.ids_T) for request in asked)
    assert odd.turn_tokens == 2 * len(CHAT.encode_turn("<action>look</action>"))
    assert counter.weight_versions == ("v1", "v2", "v3", "v4")


def test_of_a_conversation_that_grows_each_token_is_new_once() -> None:
    counter, asked = play()
    new = sum(cost.new_tokens for cost in counter.costs())
    turn = len(CHAT.encode_turn("<action>look</action>"))
    assert new == len(asked[-1].ids_T) - 3 * turn
    fresh, again = play("step")
    common = [
        next(place for place, (one, two) in enumerate(zip(a.ids_T, b.ids_T, strict=False)) if one != two)
        for a, b in pairwise(again)
    ]
    assert sum(cost.new_tokens for cost in fresh.costs()) == sum(len(r.ids_T) for r in again) - sum(common)


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(SPANS)
def test_busy_seconds_count_moments_once(spans: list[tuple[int, int]]) -> None:
    moments = {moment for start, length in spans for moment in range(start, start + length)}
    assert busy([(start, start + length) for start, length in spans]) == pytest.approx(len(moments))


def test_seconds_are_no_more_than_the_sum_over_turns() -> None:
    counter, _ = play()
    costs = counter.costs()
    assert counter.seconds > 0
    assert all(cost.seconds <= cost.turn_seconds + 1e-3 for cost in costs)
