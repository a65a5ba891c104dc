"""Tokens are drawn as often as they are likely, and said to be as likely as they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.small.draw import SeededTurn, draw, left, nats
from agentgym_tok.tokens import as_ids

CHAT = ChatFormat.builtin()
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1.0]) | st.floats(0.1, 3),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1),
    max_tokens=st.just(5),
)
LOGITS = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=12)


def turn_of(sampling: Sampling, seed: int = 0) -> SeededTurn:
    return SeededTurn(Request(as_ids([1]), sampling, seed=seed), CHAT, 100)


def said(turn: SeededTurn) -> Completion:
    answer = turn.answer("engine")
    assert isinstance(answer, Completion)
    return answer


@given(logits=LOGITS, sampling=SAMPLINGS)
def test_what_is_left_is_what_torch_leaves(logits: list[float], sampling: Sampling) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from agentgym_tok.policies.hf_turn import processed

    logits_V = np.array(logits, np.float32)
    want_V = processed(torch.from_numpy(logits_V), sampling).numpy()
    if len(set(logits)) < len(logits) and sampling.top_p < 1:
        return  # which of equals goes first is nobody's promise
    ids_V = np.arange(len(logits))
    got_V = nats(np.tile(logits_V, (len(logits), 1)), ids_V, sampling)
    before_V = np.sort(np.exp(want_V))[::-1].cumsum()
    if np.abs(before_V - sampling.top_p).min() < 1e-5:
        return  # rounding decides
    np.testing.assert_allclose(got_V, want_V, atol=1e-5)


@given(logits=st.lists(LOGITS, min_size=1, max_size=4), samplings=st.lists(SAMPLINGS, min_size=4, max_size=4))
def test_a_turn_is_the_same_in_any_company_and_its_score_too(
    logits: list[list[float]], samplings: list[Sampling]
) -> None:
    width = max(map(len, logits))
    logits_NV = np.array([[*row, *[-9.0] * (width - len(row))] for row in logits], np.float32)
    together = [turn_of(sampling, seed) for seed, sampling in enumerate(samplings[: len(logits)])]
    draw(together, logits_NV, "v")
    for seed, (turn, logits_V) in enumerate(zip(together, logits_NV, strict=True)):
        alone = turn_of(turn.sampling, seed)
        draw([alone], logits_V[None].copy(), "v")
        assert said(alone).ids_T.tolist() == said(turn).ids_T.tolist()
        assert said(alone).logprobs_T == said(turn).logprobs_T == nats(logits_V[None], said(turn).ids_T, turn.sampling)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5), Sampling(top_k=3), Sampling(top_p=0.8)])
def test_tokens_come_as_often_as_they_are_likely(sampling: Sampling) -> None:
    logits_V = np.array([0.3, -1, 2, 1.5, 0, -np.inf], np.float32)
    logits_V[-1] = -1e9  # never
    count = 4000
    turns = [turn_of(sampling, seed) for seed in range(count)]
    draw(turns, np.tile(logits_V, (count, 1)), "v")
    found_V = np.bincount([int(said(turn).ids_T[0]) for turn in turns], minlength=6) / count
    want_V = np.exp(nats(np.tile(logits_V, (6, 1)), np.arange(6), sampling))
    assert np.abs(found_V - want_V).max() < 4 * 0.5 / np.sqrt(count)
    assert not found_V[want_V == 0].any()


def test_the_likeliest_token_is_taken_at_temperature_zero() -> None:
    turn = turn_of(Sampling(temperature=0))
    draw([turn], np.array([[0, 3, 3, 1]], np.float32), "v")
    assert said(turn).ids_T.tolist() == [1]
    assert said(turn).logprobs == "raw"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_costs_its_own_turn(bad: float) -> None:
    turns = [turn_of(Sampling(), seed) for seed in range(3)]
    logits_NV = np.zeros((3, 8), np.float32)
    logits_NV[1, 4] = bad
    draw(turns, logits_NV, "v")
    assert [turn.failed for turn in turns] == [False, True, False]
    failed = turns[1].answer("engine")
    assert isinstance(failed, PolicyError)
    assert "no numbers; where: token 0 of a turn" in str(failed)


@settings(max_examples=20)
@given(sampling=SAMPLINGS)
def test_something_is_always_left(sampling: Sampling) -> None:
    logits_NV = np.random.default_rng(0).normal(0, 3, (5, 12)).astype(np.float32)
    left_NV = left(logits_NV, sampling)
    assert left_NV.dtype == np.float32
    assert np.isfinite(left_NV.max(-1)).all()
    assert (left_NV.argmax(-1) == logits_NV.argmax(-1)).all()
