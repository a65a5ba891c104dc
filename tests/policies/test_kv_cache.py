"""The KV caches of conversations: the same turns as without, for the new ids only, within their bytes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.envs.alfworld.env import ALFWorldEnv  # noqa: E402
from agentgym_tok.errors import PolicyError  # noqa: E402
from agentgym_tok.harness import Harness  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.policies.kv_cache import ConversationCaches, Prefix, can_be_cut, join, split  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402

CHAT = ChatFormat.builtin()
SIZES = {"hidden_size": 64, "intermediate_size": 64, "max_position_embeddings": 32_768}
ID_BYTES = 2 * 2 * 32 * 4
"""Keys and values of one id: layers, head size, float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, save_qwen2: Callable[..., Path]) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"), **SIZES)


@pytest.fixture(scope="module")
def plain(folder: Path) -> HFPolicy:
    return HFPolicy(folder, CHAT, device="cpu", cache_bytes=0)


def with_cache(plain: HFPolicy, limit: int = 2**30) -> HFPolicy:
    """Make a policy over the same model."""
    policy = HFPolicy.__new__(HFPolicy)
    policy.__dict__ = {**plain.__dict__, "_caches": ConversationCaches(limit), "computed_tokens": 0}
    return policy


def turns_of(policy: HFPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = policy.generate(asked)
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers) == len(asked)
    return turns


def computed(policy: HFPolicy, *asked: Request) -> tuple[int, list[Completion]]:
    before = policy.computed_tokens
    turns = turns_of(policy, asked)
    return policy.computed_tokens - before, turns


def context(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(CHAT.vocab_size, size=length).tolist()


MOVES = st.tuples(
    st.sampled_from("abc"),  # the conversation
    st.floats(0, 1) | st.just(1.0),  # how much of it goes on; less than all is a fork
    st.integers(1, 20),  # new ids
    st.integers(1, 6),  # longest turn
)


# A draw may flip where two ids are as likely up to rounding: the examples are the same on every run.
@settings(max_examples=40, derandomize=True)
@given(
    batches=st.lists(st.lists(MOVES, min_size=1, max_size=4), min_size=1, max_size=5),
    limit=st.sampled_from([2**30, 60 * ID_BYTES, 20 * ID_BYTES]),
    temperature=st.sampled_from([1.0, 0.0, 0.7]),
)
def test_turns_are_those_without_a_cache(
    plain: HFPolicy, batches: list[list[tuple[str, float, int, int]]], limit: int, temperature: float
) -> None:
    policy = with_cache(plain, limit)
    said: dict[str, list[int]] = {}
    seed = 0
    for moves in batches:
        asked = []
        for conversation, share, new, longest in moves:
            seed += 1
            old = said.get(conversation, [])
            ids = [*old[: round(share * len(old))], *context(seed, new)]
            sampling = Sampling(max_tokens=longest, temperature=temperature)
            asked.append(Request(as_ids(ids), sampling, seed=seed, conversation=conversation))
        for request, turn, want in zip(asked, turns_of(policy, asked), turns_of(plain, asked), strict=True):
            assert turn.ids_T.tolist() == want.ids_T.tolist()
            assert turn.logprobs_T is not None
            assert want.logprobs_T is not None
            np.testing.assert_allclose(turn.logprobs_T, want.logprobs_T, atol=1e-5)
            said[request.conversation] = [*request.ids_T.tolist(), *turn.ids_T.tolist()]
        assert policy._caches.nbytes <= limit
        kept = policy._caches._kept.values()
        assert policy._caches.nbytes == sum(len(prefix.ids_T) * ID_BYTES for prefix in kept)
        assert policy._caches.nbytes == sum(prefix.nbytes for prefix in kept)


def test_a_turn_costs_its_new_ids_and_a_fork_what_differs(plain: HFPolicy) -> None:
    policy, sampling = with_cache(plain), Sampling(max_tokens=4, temperature=0)
    ids = context(1, 30)

    def ask(ids: list[int], conversation: str = "a") -> tuple[int, list[int]]:
        cost, (turn,) = computed(policy, Request(as_ids(ids), sampling, conversation=conversation))
        return cost - (len(turn.ids_T) - 1), turn.ids_T.tolist()  # without the ids that it decodes from

    cost, said = ask(ids)
    assert cost == 30
    longer = [*ids, *said, *context(2, 7)]
    assert ask(longer)[0] == 7 + 1  # the last id drawn was never computed
    assert ask(longer)[0] == 1  # the same again: its last id predicts the first
    assert ask([*longer[:25], *context(3, 5)])[0] == 5
    assert ask(longer[:10])[0] == 1
    assert ask(longer[:10], "b")[0] == 10
    assert ask(longer[:10], "")[0] == ask(longer[:10], "")[0] == 10  # without a name nothing is kept


@pytest.mark.parametrize("together", [1, 3])
def test_thirty_turns_compute_hardly_more_than_one_pass_over_the_final_context(plain: HFPolicy, together: int) -> None:
    policy = with_cache(plain)
    harness = Harness(policy, CHAT, sampling=Sampling(max_tokens=8))
    made = harness.run_many(
        lambda: ALFWorldEnv(CHAT, split="valid_seen", max_steps=30), range(together), concurrency=together, seed=3
    )
    final = [len(episode.turns[-1].context.ids) + len(episode.turns[-1].completion.ids_T) for episode in made]
    assert [len(episode.turns) for episode in made] == [30] * together
    assert sum(final) * 0.95 < policy.computed_tokens <= sum(final) * 1.15


def test_a_row_that_starts_late_is_not_paid_by_the_others(plain: HFPolicy) -> None:
    policy, sampling = with_cache(plain), Sampling(max_tokens=1, temperature=0)
    old = [Request(as_ids(context(seed, 40)), sampling, conversation=str(seed)) for seed in range(3)]
    turns_of(policy, old)
    later = [Request(as_ids([*request.ids_T, 5, 6, 7]), sampling, conversation=request.conversation) for request in old]
    late = Request(as_ids(context(9, 200)), sampling, conversation="late")
    cost, turns = computed(policy, *later, late)
    assert cost == 200 + 3 * 3
    assert [turn.ids_T.tolist() for turn in turns] == [turn.ids_T.tolist() for turn in turns_of(plain, [*later, late])]


def test_the_conversation_that_waited_longest_is_dropped() -> None:
    caches = ConversationCaches(limit=100 * 8)

    def prefix(length: int) -> Prefix:
        return Prefix(as_ids(range(length)), ((torch.zeros(1, length, 1), torch.zeros(1, length, 1)),))

    for name in "abc":
        caches.keep(name, prefix(30))
    assert caches.find("a", as_ids(range(31))) is not None
    caches.keep("d", prefix(30))
    assert [name in caches._kept for name in "abcd"] == [True, False, True, True]
    caches.keep("d", prefix(101))  # larger than all that may be kept
    assert (len(caches), caches.nbytes) == (2, 60 * 8)
    assert (caches.clear(), caches.clear(), caches.nbytes) == (True, False, 0)


def test_joined_rows_come_apart_as_they_were() -> None:
    config = transformers.Qwen2Config(num_hidden_layers=2)
    rows = [
        Prefix(as_ids(range(length)), tuple((torch.randn(3, length, 4), torch.randn(3, length, 4)) for _ in range(2)))
        for length in (5, 2)
    ]
    cache = transformers.DynamicCache(config=config)
    mask_NC = join(cache, [rows[0], None, rows[1]])
    assert mask_NC.sum(1).tolist() == [5, 0, 2]
    for row, prefix in ((0, rows[0]), (2, rows[1])):
        for got, want in zip(split(cache, row, mask_NC[row].bool()), prefix.layers, strict=True):
            assert torch.equal(got[0], want[0])
            assert torch.equal(got[1], want[1])


@pytest.mark.parametrize(
    "options",
    [
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}},
    ],
)
def test_models_whose_caches_cannot_be_cut_compute_every_context_whole(
    tmp_path: Path, options: dict[str, Any], save_qwen2: Callable[..., Path]
) -> None:
    policy = HFPolicy(save_qwen2(tmp_path / "model", **SIZES, **options), CHAT, device="cpu")
    assert not can_be_cut(policy._model.config)
    assert can_be_cut(transformers.Qwen2Config())
    request = Request(as_ids(context(0, 30)), Sampling(max_tokens=1), conversation="a")
    assert [computed(policy, request)[0] for _ in range(2)] == [30, 30]
    assert len(policy._caches) == 0


def test_kept_caches_make_room_before_a_batch_is_halved(plain: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = with_cache(plain)
    asked = [Request(as_ids(context(seed, 9)), Sampling(max_tokens=3), conversation=str(seed)) for seed in range(3)]
    well = turns_of(policy, asked)
    decode, sizes = policy._decode, []

    def narrow(rows: Any) -> None:
        sizes.append(len(rows))
        if len(policy._caches):
            raise RuntimeError("out of memory")
        decode(rows)

    monkeypatch.setattr(policy, "_decode", narrow)
    assert [turn.ids_T.tolist() for turn in turns_of(policy, asked)] == [turn.ids_T.tolist() for turn in well]
    assert sizes == [3, 3]


def test_a_turn_that_failed_leaves_nothing_behind(plain: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = with_cache(plain)
    logits = policy._logits

    def broken(*given: Any, **options: Any) -> Any:
        logits_NTV = logits(*given, **options)
        logits_NTV[0] = float("nan")
        return logits_NTV

    monkeypatch.setattr(policy, "_logits", broken)
    asked = [Request(as_ids(context(seed, 9)), Sampling(max_tokens=3), conversation=str(seed)) for seed in range(2)]
    failed, _ = policy.generate(asked)
    assert isinstance(failed, PolicyError)
    assert list(policy._caches._kept) == ["1"]
