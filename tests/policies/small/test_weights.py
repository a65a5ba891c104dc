"""New weights of a small model: whole or as a change, from torch or numpy, between two tokens."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_model

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import ScoreRequest

CHAT = ChatFormat.builtin()
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def policy_of(path: Path, *, tied: bool = True, seed: int = 0) -> NumpyPolicy:
    return NumpyPolicy(random_model.write(path, tie_word_embeddings=tied, seed=seed), CHAT, version=f"v{seed}")


def asked(length: int = 20, **options: Any) -> Request:
    sampling = Sampling(**{"max_tokens": 6, **options})
    return Request(as_ids(range(length)), sampling, seed=3, conversation="a")


def ids_of(policy: NumpyPolicy, request: Request) -> list[int]:
    (turn,) = policy.generate([request])
    assert isinstance(turn, Completion)
    return [*map(int, turn.ids_T)]


@pytest.mark.parametrize("tied", [False, True])
def test_the_policy_draws_by_the_weights_that_were_sent(tmp_path: Path, *, tied: bool) -> None:
    policy, other = policy_of(tmp_path / "0", tied=tied), policy_of(tmp_path / "1", tied=tied, seed=1)
    old, new = ids_of(policy, asked()), ids_of(other, asked())
    assert old != new
    state = dict(other._tensors)
    policy.update_weights(state, "v1")
    assert len(policy._caches) == 0
    assert ids_of(policy, asked()) == new
    state[EMBEDDING] += 1  # what was sent is a copy
    assert ids_of(policy, asked()) == new
    assert policy.score([ScoreRequest(as_ids([1]), ())])[0].version == "v1"
    if tied:  # either name does, and both together
        names = dict(random_model.weights(tmp_path / "0"))
        policy.update_weights({HEAD: names[EMBEDDING], **names}, "v0")
        assert ids_of(policy, asked()) == old
        del names[EMBEDDING]
        policy.update_weights({HEAD: random_model.weights(tmp_path / "0")[EMBEDDING], **names}, "v0")
        assert ids_of(policy, asked()) == old


@pytest.mark.parametrize("tied", [False, True])
def test_tensors_of_torch_and_their_changes_are_taken(tmp_path: Path, *, tied: bool) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
    from agentgym_tok.policies.weights import delta

    policy = policy_of(tmp_path / "0", tied=tied)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "0")
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    assert HEAD in before
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.view(-1)[::7] += 0.5
        next(model.parameters()).add_(1)  # more than is worth places
    after = model.state_dict()
    policy.update_weights(delta(before, after), "v1")
    for name, tensor in policy._tensors.items():
        assert np.array_equal(tensor, after[name].numpy())
    whole = NumpyPolicy(tmp_path / "0", CHAT)  # not written anew: torch has the file mapped
    whole.update_weights({name: tensor.clone().requires_grad_() for name, tensor in after.items()}, "v1")
    assert ids_of(whole, asked()) == ids_of(policy, asked())
    whole.update_weights({name: tensor.bfloat16() for name, tensor in after.items()}, "v2")
    assert np.array_equal(whole._tensors["model.norm.weight"], after["model.norm.weight"].bfloat16().float().numpy())
    with pytest.raises(PolicyError, match=r"not those that were sent.*next: send the weights whole"):
        whole.update_weights(delta(before, after), "v3")
    assert whole._version == "v2"


def test_a_refused_update_leaves_weights_and_version(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from agentgym_tok.policies.weights import delta

    policy = policy_of(tmp_path)
    before = {name: torch.from_numpy(tensor.copy()) for name, tensor in policy._tensors.items()}
    after = {name: tensor.clone() for name, tensor in before.items()}
    after["model.norm.weight"][3] += 1
    change = delta(before, after)
    part, places = change.tensors["model.norm.weight"], torch.tensor([3], dtype=torch.int32)
    kept, tensors = ids_of(policy, asked()), dict(policy._tensors)

    def broken(**parts: Any) -> Any:
        return replace(change, tensors={**change.tensors, "model.norm.weight": replace(part, **parts)})

    for wrong, message in (
        ({"a": np.zeros(1)}, r"no such tensors; .*\['a'\]"),
        ({EMBEDDING: tensors[EMBEDDING]}, "not whole"),
        ({**tensors, "model.norm.weight": np.zeros(3)}, "another shape; where: model.norm.weight"),
        (broken(values=torch.tensor([8.0])), "not those that were sent; where: model.norm.weight"),
        (broken(places_C=places + 40), "outside its tensor; .*got: 43 to 43; expected: 0 to 31"),
        (broken(places_C=places - 4), "outside its tensor"),
        (broken(values=torch.tensor([9.0, 9.0])), "of another kind"),
        (broken(values=torch.tensor([9], dtype=torch.int32)), "of another kind"),
        (broken(after="0" * 32), "the change of weights is broken"),
        (delta({"a": torch.zeros(2)}, {"a": torch.ones(2)}), "no such tensors"),
    ):
        with pytest.raises(PolicyError, match=message):
            policy.update_weights(wrong, "v9")
        assert policy._version == "v0"
        assert ids_of(policy, asked()) == kept
    policy.update_weights(change, "v1")
    assert np.array_equal(policy._tensors["model.norm.weight"], after["model.norm.weight"].numpy())


def test_an_update_in_the_middle_of_a_turn_divides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, other = policy_of(tmp_path / "0"), policy_of(tmp_path / "1", seed=1)
    advance, passes, updates = policy._advance, iter(range(10**6)), []

    def update_after_the_fourth(rows: Any) -> np.ndarray:
        if next(passes) == 3:
            updates.append(threading.Thread(target=policy.update_weights, args=(dict(other._tensors), "v1")))
            updates[0].start()
            while not policy._turnstile.locked():  # it waits for this pass, and the next one waits for it
                time.sleep(0.001)
        return advance(rows)

    monkeypatch.setattr(policy, "_advance", update_after_the_fourth)
    monkeypatch.setattr(CHAT, "stop_ids", ())
    requests = [
        Request(as_ids(range(5 + 9 * seed)), Sampling(max_tokens=longest), seed=seed, conversation=str(seed))
        for seed, longest in enumerate((9, 2, 7))
    ]
    turns = policy.generate(requests)
    updates[0].join()
    versions = [turn.weight_versions for turn in turns if isinstance(turn, Completion)]
    assert versions == [(("v0", 0, 4), ("v1", 4, 9)), (("v0", 0, 2),), (("v0", 0, 4), ("v1", 4, 7))]
    first = policy_of(tmp_path / "0")
    for request, turn in zip(requests, turns, strict=True):
        assert isinstance(turn, Completion)
        assert turn.logprobs_T is not None
        for version, start, end in turn.weight_versions:
            ids_T = np.concatenate([request.ids_T, turn.ids_T[:end]])
            part = (len(request.ids_T) + start, len(request.ids_T) + end, request.sampling)
            (score,) = (other if version == "v1" else first).score([ScoreRequest(as_ids(ids_T), (part,))])
            assert score.raw_S.tobytes() == turn.logprobs_T[start:end].tobytes()
    # Nothing of the old weights is kept: not of the turn that ended before the update, or of those that it divided.
    for request in requests:
        assert ids_of(policy, replace(request, seed=9)) == ids_of(other, replace(request, seed=9, conversation=""))


def test_what_old_weights_computed_is_not_kept_under_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, other = policy_of(tmp_path / "0"), policy_of(tmp_path / "1", seed=1)
    keep = policy._keep

    def update_first(rows: Any) -> None:
        policy.update_weights(dict(other._tensors), "v1")
        keep(rows)

    ids_of(policy, asked())
    assert len(policy._caches) == 1
    monkeypatch.setattr(policy, "_keep", update_first)
    ids_of(policy, asked(max_tokens=1))
    assert len(policy._caches) == 0
