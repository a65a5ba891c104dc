"""New weights: bit for bit those that were sent or none at all, and every token says whose it is."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from safetensors.torch import save  # noqa: E402

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.errors import PolicyError  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.policies.hf_turn import processed  # noqa: E402
from agentgym_tok.policies.weights import WeightDelta, apply, copy_into, delta, digest  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402
from agentgym_tok.types import ScoreRequest  # noqa: E402

CHAT = ChatFormat.builtin()


def model(seed: int, *, tied: bool = False) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=CHAT.vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.3,  # so that versions draw other ids
        tie_word_embeddings=tied,
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def policy_of(path: Path, *, tied: bool = False) -> HFPolicy:
    model(0, tied=tied).save_pretrained(path)
    return HFPolicy(path, CHAT, device="cpu", version="v0")


def digests(state: Mapping[str, Any]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in state.items()}


def copies(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in state.items()}


def bits(kind: str, values: list[int]) -> Any:
    """Make a tensor of any bits at all: infinities, NaNs and negative zeros too."""
    whole = torch.tensor(values, dtype=torch.int64)
    if kind == "bool":
        return whole % 2 == 0
    dtype = getattr(torch, kind)
    width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return whole.to(width).view(dtype)


KINDS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int64", "bool"]


@settings(max_examples=80)
@given(data=st.data(), kind=st.sampled_from(KINDS), full_above=st.sampled_from([0.0, 0.25, 1.0]))
def test_a_change_leads_to_the_same_bits(data: st.DataObject, kind: str, full_above: float) -> None:
    value = st.integers(-(2**63), 2**63 - 1)
    old = data.draw(st.lists(value, min_size=0, max_size=12), label="old")
    new = [data.draw(st.just(item) | value, label="new") for item in old]
    before = {"a": bits(kind, old), "b": torch.arange(6.0).reshape(2, 3), "c": torch.tensor(1.0)}
    after = {"a": bits(kind, new), "b": before["b"].clone(), "c": torch.tensor(2.0)}
    change = delta(before, after, full_above=full_above)
    assert change.tensors["b"].nbytes == 0
    differing = int((bits("int64", old) != bits("int64", new)).sum()) if kind == "int64" else None
    assert differing is None or change.changed == differing + 1
    apply(before, WeightDelta.from_bytes(change.to_bytes()))
    assert digests(before) == digests(after)


def test_bits_count_and_not_numbers() -> None:
    before = {"a": torch.tensor([0.0, float("nan"), 1.0, 2.0, 3.0])}
    after = {"a": torch.tensor([-0.0, float("nan"), 1.0, 2.0, 3.0])}
    change = delta(before, after)
    assert change.changed == 1
    apply(before, change)
    assert digests(before) == digests(after)


def test_few_values_travel_alone_and_many_whole() -> None:
    before = {"few": torch.zeros(1000, dtype=torch.bfloat16), "many": torch.zeros(1000, dtype=torch.bfloat16)}
    after = copies(before)
    after["few"][[3, 7]] = 1
    after["many"][:251] = 1
    change = delta(before, after)
    assert change.tensors["few"].nbytes == 2 * (4 + 2)
    assert change.tensors["many"].places_C is None
    assert (change.nbytes, change.full_nbytes) == (12 + 2000, 4000)
    assert (change.changed, change.total) == (253, 2000)


def test_what_is_broken_changes_nothing() -> None:
    before = {name: torch.arange(8.0) for name in ("a", "b", "c")}
    after = copies(before)
    for tensor in after.values():
        tensor[3] = 9
    change = delta(before, after)
    last = change.tensors["c"]
    places = torch.tensor([3], dtype=torch.int32)

    def broken(**parts: Any) -> WeightDelta:
        return replace(change, tensors={**change.tensors, "c": replace(last, **parts)})

    tampered = replace(change, checksum="0" * 32)
    for wrong, message in (
        (broken(values=torch.tensor([8.0])), "not those that were sent; where: c"),
        (broken(places_C=places - 1), "not those that were sent"),
        (broken(places_C=places + 5), "outside its tensor; where: c; got: 8 to 8; expected: 0 to 7"),
        (broken(places_C=places - 4), "outside its tensor"),
        (broken(values=torch.tensor([9.0, 9.0])), "of another kind"),
        (broken(values=torch.tensor([9], dtype=torch.int32)), "of another kind"),
        (broken(values=torch.zeros(3), places_C=None), "of another kind"),
        (broken(after="0" * 32), "the change of weights is broken"),
        (tampered, "the change of weights is broken"),
    ):
        own = copies(before)
        with pytest.raises(PolicyError, match=message):
            apply(own, wrong)
        assert digests(own) == digests(before)
    elsewhere = copies(before) | {"c": torch.ones(8)}
    kept = digests(elsewhere)
    with pytest.raises(PolicyError, match=r"not those that were sent.*next: send the weights whole"):
        apply(elsewhere, change)
    assert digests(elsewhere) == kept


def test_bytes_that_are_no_change_are_refused() -> None:
    whole = delta({"a": torch.zeros(9)}, {"a": torch.ones(9)}).to_bytes()
    for wrong in (b"", whole[:-1], b"{}" + whole, save({"a": torch.zeros(1)}), save({"about": torch.zeros(1)})):
        with pytest.raises(PolicyError, match="no change of weights"):
            WeightDelta.from_bytes(wrong)


def test_weights_of_another_model_are_refused() -> None:
    own = {"a": torch.zeros(2), "b": torch.zeros(3)}
    with pytest.raises(PolicyError, match=r"no such tensors; .*got: \['c'\]"):
        copy_into(own, own | {"c": torch.zeros(1)})
    with pytest.raises(PolicyError, match=r"not whole; .*got: none for \['b'\]"):
        copy_into(own, {"a": torch.ones(2)})
    with pytest.raises(PolicyError, match="another shape; where: b"):
        copy_into(own, {"a": torch.ones(2), "b": torch.ones(1)})
    assert digests(own) == digests({"a": torch.zeros(2), "b": torch.zeros(3)})
    for other in ({"a": torch.zeros(2)}, {"a": torch.zeros(2), "b": torch.zeros(3).half()}):
        with pytest.raises(PolicyError, match=r"other tensors|another kind"):
            delta(own, other)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_policy_holds_the_weights_that_were_sent(tmp_path: Path, *, tied: bool, whole: bool) -> None:
    policy = policy_of(tmp_path, tied=tied)
    state = copies(model(0, tied=tied).state_dict())
    new = copies(state)
    for tensor in new.values():
        tensor.view(-1)[::7] += 0.5
    if tied:
        new["lm_head.weight"] = new["model.embed_tokens.weight"]
    policy.update_weights(new if whole else delta(state, new), "v1")
    assert digests(policy._model.state_dict()) == digests(new)
    if tied and whole:
        del new["lm_head.weight"]  # as safetensors leaves it out
        policy.update_weights(new, "v2")


def test_an_update_between_turns_changes_later_tokens_only(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    request = Request(as_ids(range(20)), Sampling(max_tokens=6, temperature=0), conversation="a")
    first, again = (policy.generate([request])[0] for _ in range(2))
    policy.update_weights(model(1).state_dict(), "v1")
    (after,) = policy.generate([request])
    fresh = HFPolicy.__new__(HFPolicy)
    fresh.__dict__ = {**policy.__dict__, "_model": model(1)}
    policy._caches.clear()
    (want,) = fresh.generate([request])
    turns = (first, again, after, want)
    ids, versions = [], []
    for turn in turns:
        assert isinstance(turn, Completion)
        ids.append(turn.ids_T.tolist())
        versions.append(turn.weight_versions)
    assert ids[0] == ids[1] != ids[2] == ids[3]  # nothing that the old weights computed is read
    assert versions == [((version, 0, 6),) for version in ("v0", "v0", "v1", "v1")]
    assert policy.score([ScoreRequest(request.ids_T, ())])[0].version == "v1"


def test_what_old_weights_computed_is_not_kept_under_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(tmp_path)
    keep = policy._keep

    def update_first(batch: Any) -> None:
        policy.update_weights(model(1).state_dict(), "v1")
        keep(batch)

    request = Request(as_ids(range(20)), Sampling(max_tokens=6), conversation="a")
    policy.generate([request])
    assert len(policy._caches) == 1
    monkeypatch.setattr(policy, "_keep", update_first)
    policy.generate([request])
    assert len(policy._caches) == 0


def test_a_refused_update_leaves_weights_and_version(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    kept = digests(policy._model.state_dict())
    state = model(1).state_dict()
    later = copies(state)
    later["lm_head.weight"][0] += 1
    for wrong in ({"a": torch.zeros(1)}, delta(state, later)):
        with pytest.raises(PolicyError):
            policy.update_weights(wrong, "v1")
    (turn,) = policy.generate([Request(as_ids([1, 2, 3]), Sampling(max_tokens=2))])
    assert isinstance(turn, Completion)
    assert turn.weight_versions == (("v0", 0, len(turn.ids_T)),)
    assert digests(policy._model.state_dict()) == kept


def test_an_update_in_the_middle_of_a_turn_divides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(tmp_path)
    logits, passes, updates = policy._logits, iter(range(10**6)), []

    def update_after_the_fourth(*given: Any, **options: Any) -> Any:
        if next(passes) == 3:
            updates.append(threading.Thread(target=policy.update_weights, args=(model(1).state_dict(), "v1")))
            updates[0].start()
            while not policy._turnstile.locked():  # it waits for this pass, and the next one waits for it
                time.sleep(0.001)
        return logits(*given, **options)

    monkeypatch.setattr(policy, "_logits", update_after_the_fourth)
    monkeypatch.setattr(CHAT, "stop_ids", ())
    asked = [
        Request(as_ids(range(5 + 9 * seed)), Sampling(max_tokens=longest), seed=seed, conversation=str(seed))
        for seed, longest in enumerate((9, 2, 7))
    ]
    turns = policy.generate(asked)
    updates[0].join()
    versions = [turn.weight_versions for turn in turns if isinstance(turn, Completion)]
    assert versions == [(("v0", 0, 4), ("v1", 4, 9)), (("v0", 0, 2),), (("v0", 0, 4), ("v1", 4, 7))]
    for request, turn in zip(asked, turns, strict=True):
        assert isinstance(turn, Completion)
        assert turn.logprobs_T is not None
        whole = torch.tensor([[*request.ids_T.tolist(), *turn.ids_T.tolist()]])
        for version, start, end in turn.weight_versions:
            with torch.inference_mode():
                rows = model(int(version[1])).forward(whole).logits[0, len(request.ids_T) - 1 : -1]
            nats_TV = processed(rows, request.sampling)[torch.arange(len(turn.ids_T)), torch.tensor(turn.ids_T).long()]
            np.testing.assert_allclose(turn.logprobs_T[start:end], nats_TV[start:end].numpy(), atol=1e-4)
    (after,) = policy.generate([replace(asked[0], seed=5)])  # nothing of the divided turn is wrongly kept
    (want,) = policy.generate([replace(asked[0], seed=5, conversation="")])
    assert isinstance(after, Completion)
    assert isinstance(want, Completion)
    assert np.array_equal(after.ids_T, want.ids_T)
