"""A small model's turns: the same to the bit in any batch, with any cache, in any number of threads."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_model
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.errors import PolicyError, TransientPolicyError
from agentgym_tok.policies.options import checked_options
from agentgym_tok.policies.small import contexts
from agentgym_tok.policies.small.builtin import BuiltinPolicy
from agentgym_tok.policies.small.keys import BLOCK, KeptConversations
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Policy, Scorer, ScoreRequest

CHAT = ChatFormat.builtin()
ID_BYTES = 8 * 2 * 2 * 8
"""Keys and values of one id: layers, KV heads, head size, float32."""


@pytest.fixture(scope="module")
def policy(folder: Path) -> NumpyPolicy:
    return NumpyPolicy(folder, CHAT, version="7")


def again(policy: NumpyPolicy, cache_bytes: int = 2**30, **parts: Any) -> NumpyPolicy:
    """Make a policy over the same weights, that has nothing kept."""
    made = NumpyPolicy.__new__(NumpyPolicy)
    kept = {"_caches": KeptConversations(cache_bytes), "computed_tokens": 0}
    made.__dict__ = {**policy.__dict__, **kept, **{f"_{name}": value for name, value in parts.items()}}
    return made


def context(seed: int, length: int) -> list[int]:
    return [*map(int, np.random.default_rng(seed).integers(CHAT.vocab_size, size=length))]


def requests(count: int, **sampling: Any) -> list[Request]:
    options = Sampling(**{"max_tokens": 12, **sampling})
    return [Request(as_ids(context(seed, 3 + 9 * seed)), options, seed=seed) for seed in range(count)]


def turns_of(policy: NumpyPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = policy.generate(asked)
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers) == len(asked)
    return turns


def bits(turn: Completion) -> tuple[list[int], bytes]:
    assert turn.logprobs_T is not None
    return turn.ids_T.tolist(), turn.logprobs_T.tobytes()


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        ({}, "raw"),
        ({"temperature": 0}, "raw"),
        ({"temperature": 0.7}, "processed"),
        ({"top_k": 5}, "processed"),
        ({"top_p": 0.3}, "processed"),
    ],
)
def test_log_probabilities_are_those_of_transformers(
    folder: Path, policy: NumpyPolicy, sampling: dict[str, float], kind: str
) -> None:
    torch, transformers = (pytest.importorskip(name, reason="no extra torch") for name in ("torch", "transformers"))
    from agentgym_tok.policies.hf_turn import processed

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    asked = requests(4, **sampling)
    for request, turn in zip(asked, turns_of(policy, asked), strict=True):
        assert turn.logprobs == kind
        assert turn.weight_versions == (("7", 0, len(turn.ids_T)),)
        assert (turn.sampling, turn.engine, turn.ids_exact) == (request.sampling, policy.name, True)
        whole = torch.tensor([[*request.ids_T.tolist(), *turn.ids_T.tolist()]])
        with torch.inference_mode():
            nats_TV = processed(model(whole).logits[0, len(request.ids_T) - 1 : -1], request.sampling)
        want_T = nats_TV[torch.arange(len(turn.ids_T)), torch.tensor(turn.ids_T).long()].numpy()
        assert turn.logprobs_T is not None
        np.testing.assert_allclose(turn.logprobs_T, want_T, atol=1e-4)


MOVES = st.tuples(
    st.sampled_from("abc") | st.just(""),  # the conversation
    st.just(1.0) | st.floats(0, 1),  # how much of it goes on; less than all is a fork
    st.integers(1, 90),  # new ids
    st.integers(1, 6),  # longest turn
)


@settings(max_examples=40)
@given(
    batches=st.lists(st.lists(MOVES, min_size=1, max_size=5), min_size=1, max_size=4),
    limit=st.sampled_from([0, 2 * BLOCK * ID_BYTES, 2**30]),
    size=st.sampled_from([1, 2, 64]),
    longest_pass=st.sampled_from([1, 7, 64, 256]),
    temperature=st.sampled_from([1.0, 0.0, 0.7]),
)
def test_bits_depend_on_context_and_seed_alone(
    policy: NumpyPolicy,
    batches: list[list[tuple[str, float, int, int]]],
    limit: int,
    size: int,
    longest_pass: int,
    temperature: float,
) -> None:
    assert policy.deterministic
    plain, other = again(policy, 0, batch_size=1), again(policy, limit, batch_size=size)
    said: dict[str, list[int]] = {}
    seed = 0
    with pytest.MonkeyPatch.context() as patch:
        for moves in batches:
            asked = []
            for conversation, share, new, longest in moves:
                seed += 1
                old = said.get(conversation, [])[:150]
                # The same few texts, so that contexts of several conversations begin alike.
                ids = [*old[: round(share * len(old))], *context(seed % 2, new)]
                sampling = Sampling(max_tokens=longest, temperature=temperature)
                asked.append(Request(as_ids(ids), sampling, seed=seed, conversation=conversation))
            patch.setattr(contexts, "_PASS", longest_pass)
            turns = turns_of(other, asked)
            patch.setattr(contexts, "_PASS", 256)
            for request, turn, want in zip(asked, turns, turns_of(plain, asked), strict=True):
                assert bits(turn) == bits(want)
                said[request.conversation] = [*request.ids_T.tolist(), *turn.ids_T.tolist()]
                part = (len(request.ids_T), len(request.ids_T) + len(turn.ids_T), request.sampling)
                (score,) = other.score([ScoreRequest(as_ids(said[request.conversation]), (part,))])
                assert score.processed_S.tobytes() == bits(turn)[1]
            assert other._caches.nbytes == sum(kept.nbytes for kept in other._caches.latest()) <= limit


def test_bits_do_not_depend_on_the_number_of_threads(folder: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
    }
    wide = random_model.write(tmp_path / "wide", **sizes)
    code = f"""
import hashlib
from test_policy import CHAT, NumpyPolicy, Request, Sampling, as_ids, bits, context, turns_of
for folder in {[str(folder), str(wide)]}:
    policy = NumpyPolicy(folder, CHAT)
    lengths = (*range(5, 200, 25), 700 if "wide" in folder else 200)
    asked = [Request(as_ids(context(size, size)), Sampling(max_tokens=9), seed=size) for size in lengths]
    drawn = repr([bits(turn) for turn in turns_of(policy, asked)])
    print(policy.deterministic, hashlib.sha256(drawn.encode()).hexdigest())
"""
    outs = []
    for threads in ("1", "2", "4"):
        variables = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        )
        outs.append(done.stdout)
    assert outs[0] == outs[1] == outs[2]
    assert [line.split()[0] for line in outs[0].splitlines()] == ["True", "True"]


def test_torch_is_not_needed(folder: Path) -> None:
    code = f"""
import sys
for name in ("torch", "transformers", "safetensors", "onnxruntime"):
    sys.modules[name] = None
from agentgym_tok import ChatFormat, Request, Sampling
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import as_ids
policy = NumpyPolicy({str(folder)!r}, ChatFormat.builtin())
print(len(policy.generate([Request(as_ids([1, 2, 3]), Sampling(max_tokens=4))])[0].ids_T))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("4\n", "")


def test_seeds_differ_and_repeat(policy: NumpyPolicy) -> None:
    ids_T = as_ids([5, 6, 7])
    first, other, second = (
        turns_of(policy, [Request(ids_T, Sampling(max_tokens=8), seed=seed)])[0] for seed in (1, 2, 1)
    )
    assert bits(first) == bits(second)
    assert bits(first) != bits(other)


def test_turns_end_at_stop_tokens_limits_and_the_models_room(
    policy: NumpyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert policy.context_limit == 256
    (cut,) = turns_of(policy, requests(1, max_tokens=3))
    assert (len(cut.ids_T), cut.finish_reason) == (3, "length")
    full = Request(as_ids(np.ones(254, np.int32)), Sampling(max_tokens=50))
    over = Request(as_ids(np.ones(256, np.int32)), Sampling(max_tokens=50))
    almost, none = turns_of(policy, [full, over])
    assert (len(almost.ids_T), almost.finish_reason) == (2, "truncated")
    assert (len(none.ids_T), none.finish_reason) == (0, "truncated")
    greedy = requests(1, temperature=0)
    first = int(turns_of(policy, greedy)[0].ids_T[0])
    monkeypatch.setattr(CHAT, "stop_ids", (first,))
    (stopped,) = turns_of(policy, greedy)
    assert (stopped.ids_T.tolist(), stopped.finish_reason) == ([first], "stop")


def test_a_turn_ends_where_its_text_completes_a_stop_string(policy: NumpyPolicy) -> None:
    (whole,) = turns_of(policy, requests(1))
    end = next(place for place in range(5, 12) if "\ufffd" not in CHAT.decode(whole.ids_T[place - 2 : place]))
    stop = CHAT.decode(whole.ids_T[end - 2 : end])
    assert stop not in CHAT.decode(whole.ids_T[: end - 1])
    (turn,) = turns_of(policy, [replace(requests(1)[0], sampling=Sampling(max_tokens=12, stop=(stop,)))])
    assert (turn.ids_T.tolist(), turn.finish_reason) == (whole.ids_T[:end].tolist(), "stop")


def test_a_listener_hears_every_token_and_breaks_turns_off(policy: NumpyPolicy) -> None:
    asked = requests(3)
    heard: dict[Request, list[tuple[int, int, float]]] = {request: [] for request in asked}

    def listen(request: Request, place: int, index: int, logprob: float) -> bool:
        heard[request].append((place, index, logprob))
        return request is not asked[1] or place < 4

    turns = policy.generate(asked, listen)
    assert isinstance(policy, Policy)
    assert policy.listens
    for request, turn, want in zip(asked, turns, turns_of(policy, asked), strict=True):
        assert isinstance(turn, Completion)
        assert turn.ids_T.tolist() == want.ids_T[: len(turn.ids_T)].tolist() == [one[1] for one in heard[request]]
        assert [one[0] for one in heard[request]] == [*range(len(turn.ids_T))]
    assert [turn.finish_reason for turn in turns if isinstance(turn, Completion)] == ["length", "abort", "length"]
    assert len(heard[asked[1]]) == 5


def test_who_waits_begins_when_a_seat_is_free(policy: NumpyPolicy) -> None:
    other = again(policy, batch_size=2)
    asked = [replace(one, sampling=Sampling(max_tokens=2 + one.seed)) for one in requests(5)]
    sizes: list[int] = []
    logits = other._network.logits

    class Counting:
        forward = other._network.forward

        @staticmethod
        def logits(hidden_NH: np.ndarray) -> np.ndarray:
            sizes.append(len(hidden_NH))
            return logits(hidden_NH)

    other.__dict__["_network"] = Counting
    want = [bits(turn) for turn in turns_of(policy, asked)]
    assert [bits(turn) for turn in turns_of(other, asked)] == want
    drawn = sum(len(ids) for ids, _ in want)
    assert sum(sizes) == drawn
    assert max(sizes) == 2
    assert sizes.count(1) <= 6  # only the last turn is drawn alone


def test_a_failed_turn_costs_the_others_nothing_and_is_not_kept(
    policy: NumpyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [replace(request, conversation=str(request.seed)) for request in requests(3)]
    well = turns_of(again(policy), asked)
    other = again(policy)
    advance, passes = other._advance, iter(range(10**6))

    def broken(rows: Any) -> np.ndarray:
        hidden_NH = advance(rows)
        if next(passes) == 2:
            hidden_NH[1] = np.nan
        return hidden_NH

    monkeypatch.setattr(other, "_advance", broken)
    first, failed, last = other.generate(asked)
    assert isinstance(failed, PolicyError)
    assert "no numbers; where: token 2 of a turn" in str(failed)
    for turn, want in ((first, well[0]), (last, well[2])):
        assert isinstance(turn, Completion)
        assert bits(turn) == bits(want)
    assert len(other._caches) == 2


def test_an_empty_context_costs_its_own_turn(policy: NumpyPolicy) -> None:
    failed, turn = policy.generate([Request(as_ids([])), requests(1)[0]])
    assert isinstance(failed, PolicyError)
    assert isinstance(turn, Completion)


def test_options_are_read_by_their_types(folder: Path) -> None:
    written = {"batch_size": "3", "version": "9", "cache_bytes": "0"}
    options = checked_options(NumpyPolicy, written, "policy numpy")
    assert options == {"batch_size": 3, "version": "9", "cache_bytes": 0}
    assert len(NumpyPolicy(str(folder), CHAT, **options).generate(requests(5))) == 5
    assert checked_options(BuiltinPolicy, {"world": "shop"}, "policy builtin") == {"world": "shop"}


def test_no_memory_may_pass(policy: NumpyPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    other = again(policy)
    turns_of(other, [replace(requests(1)[0], conversation="a")])

    def fail(rows: Any) -> np.ndarray:
        raise MemoryError("no room for 9 bytes")

    monkeypatch.setattr(other, "_advance", fail)
    with pytest.raises(TransientPolicyError, match=r"no memory for the model; .*no room for 9 bytes"):
        other.generate(requests(2))
    assert len(other._caches) == 0


def cost(policy: NumpyPolicy, *asked: Request) -> int:
    """Return how many tokens were computed, but for those that turns decode from."""
    before = policy.computed_tokens
    turns = turns_of(policy, asked)
    return policy.computed_tokens - before - sum(len(turn.ids_T) - 1 for turn in turns)


def test_a_turn_costs_its_new_ids_and_a_beginning_is_computed_once(policy: NumpyPolicy) -> None:
    other, sampling = again(policy), Sampling(max_tokens=4, temperature=0)
    ids = context(1, 100)

    def ask(ids: list[int], conversation: str) -> Request:
        return Request(as_ids(ids), sampling, conversation=conversation)

    assert cost(other, ask(ids, "a")) == 100
    (turn,) = turns_of(again(policy), [ask(ids, "a")])
    longer = [*ids, *turn.ids_T.tolist(), *context(2, 7)]
    assert cost(other, ask(longer, "a")) == 7 + 1  # the last id drawn was never computed
    assert cost(other, ask(longer, "a")) == 1  # the same again: its last id predicts the first
    assert cost(other, ask([*longer[:25], *context(3, 5)], "a")) == 5
    assert cost(other, ask(longer, "b")) == len(longer) - 25  # what "a" still has of it
    assert cost(other, ask([*longer, *context(4, 3)], "")) == 3  # without a name, another one's beginning serves
    together = [ask([*context(9, 90), *context(seed, 5)], str(seed)) for seed in range(4)]
    assert cost(other, *together) == 90 + 4 * 5
    assert cost(again(policy, 0), *together) == 90 + 4 * 5  # without a cache, within a batch


def test_conversations_of_one_name_do_not_disturb_each_other(policy: NumpyPolicy) -> None:
    other, ids_T = again(policy), as_ids(context(1, 80))
    asked = [Request(ids_T, Sampling(max_tokens=6), seed=seed, conversation="a") for seed in range(4)]
    want = [bits(turn) for turn in turns_of(again(policy, 0, batch_size=1), asked)]
    assert [bits(turn) for turn in turns_of(other, asked)] == want
    assert [bits(turn) for turn in turns_of(other, asked)] == want
    assert len(other._caches) == 1


def test_the_conversation_that_waited_longest_is_dropped(policy: NumpyPolicy) -> None:
    other = again(policy, 3 * BLOCK * ID_BYTES)

    def ask(name: str, length: int = 20) -> Request:
        return Request(as_ids(context(ord(name), length)), Sampling(max_tokens=1), conversation=name)

    assert cost(other, ask("a"), ask("b"), ask("c")) == 60
    assert cost(other, ask("a")) == 1
    assert cost(other, ask("d")) == 20
    assert [cost(other, ask(name)) for name in "acd"] == [1, 1, 1]
    assert cost(other, ask("b")) == 20
    cost(other, ask("e", 200))  # larger than all that may be kept
    assert len(other._caches) == 3


def test_scores_of_many_parts_are_those_of_one_by_one(policy: NumpyPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(policy, Scorer)
    ids_T = as_ids(context(1, 60))
    samplings = (Sampling(), Sampling(temperature=0), Sampling(temperature=0.6), Sampling(top_k=9))
    parts = tuple((start, start + 1 + 5 * place, samplings[place]) for place, start in enumerate((1, 4, 20, 44)))
    scores = []
    for longest in (7, 256):
        monkeypatch.setattr(contexts, "_PASS", longest)
        scores += policy.score([ScoreRequest(ids_T, parts)])
    one_by_one = [policy.score([ScoreRequest(ids_T, (part,))])[0] for part in parts]
    for score in scores:
        assert score.raw_S.tobytes() == b"".join(one.raw_S.tobytes() for one in one_by_one)
        assert score.processed_S.tobytes() == b"".join(one.processed_S.tobytes() for one in one_by_one)
        assert not score.raw_S.flags.writeable
    assert np.isneginf(scores[0].processed_S).any()
    assert not np.isneginf(scores[0].raw_S).any()
    (nothing,) = policy.score([ScoreRequest(ids_T, ())])
    assert (len(nothing.raw_S), nothing.version) == (0, "7")


def test_what_cannot_be_scored_is_named(policy: NumpyPolicy) -> None:
    full = as_ids(np.ones(257, np.int32))
    assert len(policy.score([ScoreRequest(full, ((200, 256, Sampling()),))])[0].raw_S) == 56
    with pytest.raises(PolicyError, match=r"longer than the model's context; where: numpy:.*; got: 257 ids"):
        policy.score([ScoreRequest(full, ((200, 257, Sampling()),))])
    broken = again(policy)
    tensors = {name: tensor.copy() for name, tensor in policy._tensors.items()}
    tensors["model.norm.weight"][3] = np.nan
    broken.update_weights(tensors, "8")
    with pytest.raises(PolicyError, match="no numbers"):
        broken.score([ScoreRequest(full, ((1, 2, Sampling()),))])
