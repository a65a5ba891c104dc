"""vLLM in this process: exact turns, and weights that change in the middle of them; runs in vLLM's own environment."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import untied
from played import TOLERANCE, play, prove
from renewed import asked, prove_versions, states, turns_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that vLLM brings
    pytest.importorskip("vllm", reason="vLLM is not installed in this environment: run make test-engine")
    from agentgym_tok.policies.vllm_offline import VLLMOfflinePolicy

from agentgym_tok import ChatFormat, Request, Sampling
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies import weight_files
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.policies.weights import delta
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Scorer, ScoreRequest

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

CONTEXT = 4096


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the model with an output head of its own, without which it takes no weights on a CPU."""
    return untied(folder, tmp_path_factory.mktemp("untied") / "model")


@pytest.fixture(scope="module")
def offline(served: Path, chat: ChatFormat) -> Iterator[VLLMOfflinePolicy]:
    made = VLLMOfflinePolicy(served, chat, version="default", dtype="float32", context=CONTEXT)
    yield made
    made.close()


@pytest.fixture
def first(offline: VLLMOfflinePolicy, served: Path) -> Iterator[dict[str, Any]]:
    """Return the folder's own weights, called `v0` until the test ends."""
    (state,) = states(served, 1)
    offline.update_weights(state, "v0")
    yield state
    offline.update_weights(state, "default")


def test_an_episode_is_exact_trained_and_as_likely_in_transformers(
    offline: VLLMOfflinePolicy,
    chat: ChatFormat,
    scorer: HFPolicy,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    episodes = play(offline, chat, "ALFWorld", tmp_path)
    record_property("largest difference", prove(episodes, tmp_path, chat, scorer))


def test_a_seed_draws_the_same_in_a_batch_and_alone(offline: VLLMOfflinePolicy, chat: ChatFormat) -> None:
    prompt_T = chat.open([{"role": "user", "content": "Say anything."}]).ids
    requests = [Request(prompt_T, Sampling(max_tokens=16), seed=seed) for seed in (1, 2, 3, 1)]
    together = turns_of(offline.generate(requests))
    assert together[0].ids_T.tolist() == together[3].ids_T.tolist()
    assert len({turn.ids_T.tobytes() for turn in together}) == 3
    for request, turn in zip(requests, together, strict=True):
        (alone,) = turns_of(offline.generate([request]))
        assert turn.ids_T.tolist() == alone.ids_T.tolist()


def test_the_models_generation_config_has_no_effect(
    offline: VLLMOfflinePolicy, chat: ChatFormat, scorer: HFPolicy
) -> None:
    prompt_T = chat.encode("hostile")  # the likeliest id after it is the end that the tiny model's file names
    likeliest = [Request(prompt_T, Sampling(temperature=0, max_tokens=16))]
    (turn,), (expected,) = turns_of(offline.generate(likeliest)), turns_of(scorer.generate(likeliest))
    assert turn.ids_T.tolist() == expected.ids_T.tolist()
    drawn = offline.generate([Request(prompt_T, Sampling(max_tokens=1), seed=seed) for seed in range(32)])
    assert len({turn.ids_T.tobytes() for turn in turns_of(drawn)}) > 3


def test_a_stop_string_ends_the_turn_with_its_token(offline: VLLMOfflinePolicy, chat: ChatFormat) -> None:
    prompt_T = chat.encode("Once upon a time")
    (free,) = turns_of(offline.generate([Request(prompt_T, Sampling(max_tokens=16, temperature=0))]))
    stop = chat.decode(free.ids_T[5:6]).strip() or chat.decode(free.ids_T[:6])
    (held,) = turns_of(offline.generate([Request(prompt_T, Sampling(max_tokens=16, temperature=0, stop=(stop,)))]))
    assert held.ids_exact
    assert held.finish_reason == "stop"
    assert stop in chat.decode(held.ids_T)
    assert free.ids_T.tolist()[: len(held.ids_T)] == held.ids_T.tolist()


def test_a_context_that_is_full_ends_as_truncated(offline: VLLMOfflinePolicy, chat: ChatFormat) -> None:
    draw = np.random.default_rng(0)
    nearly_T, full_T = (as_ids(draw.integers(chat.vocab_size, size=CONTEXT - left)) for left in (2, 0))
    turns = turns_of(offline.generate([Request(ids_T, Sampling(max_tokens=24)) for ids_T in (nearly_T, full_T)]))
    assert [(len(turn.ids_T), turn.finish_reason) for turn in turns] == [(2, "truncated"), (0, "truncated")]


def test_it_scores_as_transformers_does(offline: VLLMOfflinePolicy, chat: ChatFormat, scorer: HFPolicy) -> None:
    assert isinstance(offline, Scorer)
    draw = np.random.default_rng(1)
    requests = [
        ScoreRequest(as_ids(draw.integers(chat.vocab_size, size=length)), ((1, 4, Sampling()), (9, length, Sampling())))
        for length in (12, 300)
    ]
    for mine, theirs in zip(offline.score(requests), scorer.score(requests), strict=True):
        np.testing.assert_allclose(mine.raw_S, theirs.raw_S, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(mine.processed_S, theirs.processed_S, atol=TOLERANCE, rtol=0)
        assert mine.version == theirs.version
    with pytest.raises(PolicyError, match="raw log-probabilities of a prompt only"):
        offline.score([ScoreRequest(as_ids([1, 2, 3]), ((1, 2, Sampling(top_k=4)),))])


def test_whole_weights_and_changes_are_drawn_from(
    offline: VLLMOfflinePolicy, chat: ChatFormat, served: Path, first: dict[str, Any], record_property: Any
) -> None:
    _, second, third = states(served, 3)
    requests = asked(chat, 3, 16)
    before = turns_of(offline.generate(requests))
    offline.update_weights(second, "v1")
    between = turns_of(offline.generate(requests))
    offline.update_weights(delta(second, third), "v2")
    after = turns_of(offline.generate(requests))
    for version, turns in (("v0", before), ("v1", between), ("v2", after)):
        assert all(turn.weight_versions == ((version, 0, len(turn.ids_T)),) for turn in turns)
    drawn = [*zip(requests * 3, [*before, *between, *after], strict=True)]
    named = {"v0": first, "v1": second, "v2": third}
    record_property("largest difference", prove_versions(served, chat, named, drawn))


def test_an_update_lands_in_the_middle_of_turns(
    offline: VLLMOfflinePolicy,
    chat: ChatFormat,
    served: Path,
    first: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
) -> None:
    monkeypatch.setattr(chat, "stop_ids", ())
    _, second = states(served, 2)
    step, steps = offline._engine.step, iter(range(10**6))
    updates: list[threading.Thread] = []

    def update_after_the_fifth() -> Any:
        if next(steps) == 5:
            updates.append(threading.Thread(target=offline.update_weights, args=(second, "v1")))
            updates[0].start()
            while not offline._turnstile.locked():  # it waits for this step, and the next one waits for it
                time.sleep(0.001)
        return step()

    monkeypatch.setattr(offline._engine, "step", update_after_the_fifth)
    requests = asked(chat, 4, 24)
    turns = turns_of(offline.generate(requests))
    updates[0].join()
    assert all([run[0] for run in turn.weight_versions] == ["v0", "v1"] for turn in turns)
    drawn = [*zip(requests, turns, strict=True)]
    record_property("largest difference", prove_versions(served, chat, {"v0": first, "v1": second}, drawn))


def test_weights_that_do_not_arrive_leave_the_old_ones(
    offline: VLLMOfflinePolicy,
    chat: ChatFormat,
    served: Path,
    first: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, second = states(served, 2)
    requests = asked(chat, 2, 8)
    before = turns_of(offline.generate(requests))
    save = weight_files.save_file

    def cut(tensors: Any, file: Path, **rest: Any) -> None:
        save(tensors, file, **rest)
        file.write_bytes(file.read_bytes()[:100_000])

    def others(tensors: Any, file: Path, **rest: Any) -> None:
        save({name: tensor + 1 for name, tensor in tensors.items()}, file, **rest)

    for broken, message in (
        (cut, "does not take the weights"),
        (others, "does not hold the weights that it was given"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(weight_files, "save_file", broken)
            with pytest.raises(PolicyError, match=message):
                offline.update_weights(second, "v1")
        for turn, want in zip(turns_of(offline.generate(requests)), before, strict=True):
            assert turn.ids_T.tolist() == want.ids_T.tolist()
            assert turn.weight_versions == want.weight_versions
