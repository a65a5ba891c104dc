"""A GGUF model through llama.cpp: what is drawn is what was asked for, and as likely as transformers finds it."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("xllamacpp", reason="the extra llamacpp is not installed")
pytest.importorskip("gguf", reason="gguf, which writes the models of these tests, is not installed")
torch = pytest.importorskip("torch", reason="the extra torch is not installed")

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))

import played  # noqa: E402
from gguf_models import smollm2_gguf, write_qwen3  # noqa: E402
from models import smollm2, tiny_qwen3  # noqa: E402
from vllm_server import CACHE, vllm_python  # noqa: E402

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.errors import (  # noqa: E402
    ConfigError,
    DataMissing,
    FingerprintMismatch,
    MissingExtra,
    PolicyError,
    TransientPolicyError,
)
from agentgym_tok.policies import llamacpp, load_policy  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.policies.hf_turn import processed  # noqa: E402
from agentgym_tok.policies.llamacpp import LlamaCppPolicy  # noqa: E402
from agentgym_tok.policies.llamacpp_piece import question, read_piece  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402
from agentgym_tok.types import Delta, ScoreRequest  # noqa: E402

CHAT = ChatFormat.builtin()
TOLERANCE = 1e-3
HALF = {index for index in range(CHAT.vocab_size) if CHAT.token_bytes(as_ids([index]))[0][-1] >= 0xC2}
"""Ids that end in the first byte of a character."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def file(folder: Path) -> Path:
    return write_qwen3(folder, folder / "f32.gguf")


@pytest.fixture(scope="session")
def scorer(folder: Path) -> HFPolicy:
    return HFPolicy(folder, CHAT, device="cpu")


@pytest.fixture(scope="session")
def policy(file: Path) -> Iterator[LlamaCppPolicy]:
    with LlamaCppPolicy(file, CHAT, slots=2, threads=1) as made:
        yield made


def requests(count: int, **sampling: Any) -> list[Request]:
    draw = np.random.default_rng(0)
    options = Sampling(**{"max_tokens": 40, **sampling})
    return [
        Request(as_ids(draw.integers(CHAT.vocab_size, size=3 + 15 * index)), options, seed=index)
        for index in range(count)
    ]


def turns_of(policy: LlamaCppPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = policy.generate(asked)
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers) == len(asked), answers
    return turns


def logprobs_of(turn: Completion) -> np.ndarray:
    assert turn.logprobs_T is not None
    return turn.logprobs_T


def difference(scorer: HFPolicy, asked: Sequence[Request], turns: Sequence[Completion]) -> np.ndarray:
    """Return how much more likely each id of each turn is than transformers finds it, in nats."""
    found: list[np.ndarray] = []
    for request, turn in zip(asked, turns, strict=True):
        ids_T, start = np.concatenate([request.ids_T, turn.ids_T]), len(request.ids_T)
        (scores,) = scorer.score([ScoreRequest(ids_T, ((start, len(ids_T), request.sampling),))])
        assert not np.isneginf(scores.processed_S).any()
        found.append(logprobs_of(turn) - scores.raw_S)
    return np.concatenate(found)


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0}, {"temperature": 0.7}, {"top_k": 5}, {"temperature": 2, "top_p": 0.3}]
)
def test_log_probabilities_are_those_of_the_model_whatever_the_sampling(
    policy: LlamaCppPolicy,
    scorer: HFPolicy,
    sampling: dict[str, float],
    record_property: Callable[[str, object], None],
) -> None:
    asked = requests(6, **sampling)
    turns = turns_of(policy, asked)
    largest = float(np.abs(difference(scorer, asked, turns)).max())
    record_property("largest difference", largest)
    assert largest < TOLERANCE
    for request, turn in zip(asked, turns, strict=True):
        assert (turn.logprobs, turn.ids_exact, turn.sampling) == ("raw", True, request.sampling)


def test_a_logarithm_of_what_is_no_normal_number_is_no_log_probability(
    policy: LlamaCppPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert turns_of(policy, requests(1))[0].logprobs == "raw"
    monkeypatch.setattr(llamacpp, "SMALLEST", -1.0)
    assert turns_of(policy, requests(1))[0].logprobs == "sentinel"


def test_an_id_that_ends_in_half_a_character_has_its_log_probability(
    policy: LlamaCppPolicy, scorer: HFPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, searched = requests(12), []
    look_up = policy._looked_up

    def counted(context: list[int], index: int) -> float:
        searched.append(index)
        return look_up(context, index)

    monkeypatch.setattr(policy, "_looked_up", counted)
    turns = turns_of(policy, asked)
    assert HALF & set(searched)  # llama.cpp leaves these out
    assert np.abs(difference(scorer, asked, turns)).max() < TOLERANCE


WHOLE = Sampling(max_tokens=1)


@pytest.mark.parametrize(
    "sampling",
    [
        WHOLE,
        Sampling(max_tokens=1, temperature=0.6),
        Sampling(max_tokens=1, top_k=9),
        Sampling(max_tokens=1, temperature=0.5, top_p=0.7),
        Sampling(max_tokens=1, temperature=1.5, top_k=60, top_p=0.8),
    ],
    ids=str,
)
def test_ids_are_drawn_from_the_distribution_that_was_asked_for(
    policy: LlamaCppPolicy, scorer: HFPolicy, sampling: Sampling
) -> None:
    context_T, count = CHAT.encode("go to the desk and look"), 600
    whole = torch.from_numpy(context_T.astype(np.int64))[None]
    with torch.inference_mode():
        logits_V = scorer._model(whole).logits[0, -1]
    probability_V = processed(logits_V, sampling).double().exp().numpy()
    turns = turns_of(policy, [Request(context_T, sampling, seed=seed) for seed in range(count)])
    drawn = np.array([turn.ids_T[0] for turn in turns])
    assert (probability_V[drawn] > 0).all()
    # Bins of about equal mass, from the likeliest ids to the unlikeliest.
    order = np.argsort(-probability_V)
    bin_V = np.zeros(len(order), int)
    bin_V[order] = np.minimum(9, (np.cumsum(probability_V[order]) * 10 - 1e-9).astype(int))
    expected = count * np.bincount(bin_V, probability_V, minlength=10)
    observed = np.bincount(bin_V[drawn], minlength=10)
    filled = expected > 0
    assert (observed[~filled] == 0).all()
    # Of at most 9 degrees of freedom: one run of ten thousand exceeds it by chance, and the seeds are fixed.
    assert (((observed - expected) ** 2)[filled] / expected[filled]).sum() < 33.7


def test_the_likeliest_id_is_taken_at_temperature_zero_and_at_top_k_one(
    policy: LlamaCppPolicy, scorer: HFPolicy
) -> None:
    cold, narrow = requests(3, temperature=0), requests(3, temperature=3, top_k=1)
    turns = turns_of(policy, cold)
    assert [turn.ids_T.tolist() for turn in turns_of(policy, narrow)] == [turn.ids_T.tolist() for turn in turns]
    for turn, other in zip(turns, scorer.generate(cold), strict=True):
        assert isinstance(other, Completion)
        assert turn.ids_T.tolist() == other.ids_T.tolist()


def test_seeds_differ_and_repeat_in_a_batch_alone_and_in_a_stream(policy: LlamaCppPolicy) -> None:
    context_T = CHAT.encode("look")
    asked = [Request(context_T, Sampling(max_tokens=40), seed=seed) for seed in (1, 2, 1, 2**32 - 1, 2**63, -5)]
    turns = turns_of(policy, asked)
    assert np.array_equal(turns[0].ids_T, turns[2].ids_T)
    assert len({turn.ids_T.tobytes() for turn in turns}) == 5
    assert turns_of(policy, asked[3:4])[0].ids_T.tolist() == turns[3].ids_T.tolist()

    async def streamed(request: Request) -> list[Delta]:
        return [delta async for delta in policy.stream(request)]

    for request, turn in zip(asked, turns, strict=True):
        *pieces, last = asyncio.run(streamed(request))
        assert last.completion is not None
        assert len(pieces) == -(-len(turn.ids_T) // 32)
        for whole in (as_ids(np.concatenate([piece.ids_T for piece in pieces])), last.completion.ids_T):
            assert whole.tolist() == turn.ids_T.tolist()
        logprobs = [piece.logprobs_T for piece in pieces if piece.logprobs_T is not None]
        np.testing.assert_allclose(np.concatenate(logprobs), logprobs_of(turn), atol=TOLERANCE)
        assert asyncio.run(policy.complete(request)).ids_T.tolist() == turn.ids_T.tolist()


def test_a_turn_ends_at_the_formats_stop_tokens_and_not_at_the_files(
    policy: LlamaCppPolicy, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    end = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    hostile = Request(CHAT.encode("hostile"), Sampling(temperature=0, max_tokens=12))
    (turn,) = turns_of(policy, [hostile])
    assert turn.ids_T[0] == end
    assert (len(turn.ids_T), turn.finish_reason) == (12, "length")
    for place in (0, 5):
        monkeypatch.setattr(CHAT, "stop_ids", (int(turn.ids_T[place]),))
        (cut,) = turns_of(policy, [hostile])
        length = turn.ids_T.tolist().index(turn.ids_T[place]) + 1
        assert (cut.ids_T.tolist(), cut.finish_reason) == (turn.ids_T[:length].tolist(), "stop")
        np.testing.assert_allclose(logprobs_of(cut), logprobs_of(turn)[:length], atol=TOLERANCE)


def test_a_turn_ends_with_the_token_that_completes_a_stop_string(policy: LlamaCppPolicy) -> None:
    (whole,) = turns_of(policy, requests(1, max_tokens=70))
    texts = [CHAT.token_text(index) for index in whole.ids_T.tolist()]
    place = next(place for place, text in enumerate(texts) if place > 33 and text.isascii() and len(text) > 3)
    stop = texts[place - 1][-1:] + texts[place][:2]
    (cut,) = turns_of(policy, requests(1, max_tokens=70, stop=("never", stop)))
    assert cut.finish_reason == "stop"
    assert stop in CHAT.decode(cut.ids_T)
    assert stop not in CHAT.decode(cut.ids_T[:-1])
    assert cut.ids_T.tolist() == whole.ids_T[: len(cut.ids_T)].tolist()


def test_turns_end_at_limits_and_at_the_models_room(file: Path, scorer: HFPolicy) -> None:
    with LlamaCppPolicy(file, CHAT, context=100, slots=1, threads=1) as policy:
        (cut,) = turns_of(policy, requests(1, max_tokens=3))
        assert (len(cut.ids_T), cut.finish_reason) == (3, "length")
        asked = [Request(as_ids(np.full(size, 77)), Sampling(max_tokens=50)) for size in (50, 60, 99, 100, 101)]
        turns = turns_of(policy, asked)
        assert [len(turn.ids_T) for turn in turns] == [50, 40, 1, 0, 0]
        assert [turn.finish_reason for turn in turns] == ["length", *["truncated"] * 4]
        # Up to its last place the context is whole: nothing was shifted out.
        assert np.abs(difference(scorer, asked[:3], turns[:3])).max() < TOLERANCE
    with LlamaCppPolicy(file, CHAT, context=20_000, slots=1, threads=1) as policy:
        # llama.cpp would refuse more than the model's own limit.
        (none,) = turns_of(policy, [Request(as_ids(np.full(8192, 77)))])
        assert (len(none.ids_T), none.finish_reason) == (0, "truncated")


def test_only_what_is_new_in_a_conversation_is_computed(file: Path) -> None:
    with LlamaCppPolicy(file, CHAT, slots=2, threads=1) as policy:
        draw = np.random.default_rng(3)
        contexts = [draw.integers(5, CHAT.vocab_size, size=200) for _ in range(6)]
        spent = []
        for turn in range(3):
            before = policy.computed_tokens
            asked = [Request(as_ids(context), Sampling(max_tokens=20), seed=turn) for context in contexts]
            answers = [turns_of(policy, [one])[0] for one in asked]  # three times as many as there are slots
            spent.append(policy.computed_tokens - before)
            new = [draw.integers(5, CHAT.vocab_size, size=30) for _ in contexts]
            contexts = [np.concatenate([c, a.ids_T, n]) for c, a, n in zip(contexts, answers, new, strict=True)]
        assert spent[0] >= 6 * 219
        # 30 new ids, the last one drawn, and 19 of the next 20; some more where half a character is looked up.
        assert all(6 * 40 < one < 6 * 100 for one in spent[1:]), spent


def test_one_failure_costs_one_turn(policy: LlamaCppPolicy, file: Path) -> None:
    well, other = requests(2, max_tokens=4)
    foreign = Request(as_ids([CHAT.vocab_size + 5]), well.sampling)
    late = Request(well.ids_T, well.sampling, deadline=time.time() - 1)
    empty = Request(as_ids([]), well.sampling)
    answers = policy.generate([well, foreign, late, empty, other])
    assert [type(answer) for answer in answers] == [
        Completion,
        PolicyError,
        TransientPolicyError,
        PolicyError,
        Completion,
    ]
    assert "refused or failed; where: llamacpp:f32.gguf; got: Prompt contains invalid tokens" in str(answers[1])
    assert "deadline" in str(answers[2])
    with LlamaCppPolicy(file, CHAT, slots=1, threads=1) as closed:
        pass
    with pytest.raises(PolicyError, match="closed"):
        closed.answer(well)


def other_tokenizer(folder: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write the tiny model with other tokens."""
    shutil.copytree(folder, path)
    rules = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    change(rules)
    (path / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
    return write_qwen3(path, path / "other.gguf")


def test_a_chat_format_of_other_ids_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shift(rules: dict[str, Any]) -> None:
        vocabulary = rules["model"]["vocab"]
        last = max(vocabulary.values())
        for text, index in list(vocabulary.items()):
            if index > 300:
                vocabulary[text] = index + 1 if index < last else 301

    def swap(rules: dict[str, Any]) -> None:
        first, second = rules["added_tokens"][1:3]
        first["id"], second["id"] = second["id"], first["id"]

    for name, change in (("shifted", shift), ("swapped", swap)):
        with pytest.raises(FingerprintMismatch, match=r"another vocabulary .*next: use ChatFormat.from_pretrained"):
            LlamaCppPolicy(other_tokenizer(folder, tmp_path / name, change), CHAT, slots=1, threads=1)


def test_a_model_that_is_missing_broken_or_too_small_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataMissing, match="no model"):
        LlamaCppPolicy(tmp_path / "none.gguf", CHAT)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(PolicyError, match="cannot load"):
        LlamaCppPolicy(tmp_path / "broken.gguf", CHAT)
    monkeypatch.setattr(CHAT, "vocab_size", CHAT.vocab_size + 1)
    with pytest.raises(ConfigError, match="does not know"):
        LlamaCppPolicy(file, CHAT, slots=1, threads=1)


def test_the_policy_has_a_name(file: Path) -> None:
    with load_policy(f"llamacpp:{file}?slots=1&threads=1", CHAT) as policy:  # type: ignore[attr-defined]
        assert isinstance(policy, LlamaCppPolicy)
        assert policy.name == "llamacpp:f32.gguf"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.delitem(sys.modules, llamacpp.__name__)
    with pytest.raises(MissingExtra, match=r'pip install "agentgym-tok\[llamacpp\]"'):
        load_policy("llamacpp:model.gguf", CHAT)


def answer(ids: list[int], known: list[int], **changed: Any) -> dict[str, Any]:
    asked = question([1, 2], Sampling(temperature=0.7), len(ids), 7)
    said = {
        "tokens": ids,
        "tokens_evaluated": 2,
        "truncated": False,
        "stop_type": "limit",
        "prompt": "",
        "timings": {"prompt_n": 2},
        "generation_settings": {**asked, "temperature": float(np.float32(asked["temperature"]))},
        "completion_probabilities": [{"id": index, "logprob": -1.0 * index, "top_logprobs": []} for index in known],
    }
    return {"__verbose": {**said, **changed}}


def drawn_with(**changed: Any) -> dict[str, Any]:
    said = answer([3, 4], [3])
    said["__verbose"]["generation_settings"] |= changed
    return said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"error": {"code": 400, "message": "no such slot"}}, "refused or failed; .*no such slot"),
        ({"code": 500, "message": "no JSON"}, "refused or failed; .*no JSON"),
        ({}, "another form"),
        (answer([3, 4], [3, 4], tokens_evaluated=1), "read other ids"),
        (answer([3], [3]), "another number of ids"),
        (answer([], [], stop_type="eos"), "another number of ids"),
        (answer([3, 4, 5], [3, 4, 5]), "another number of ids"),
        (answer([3, 4], [3, 5]), "log-probabilities are of other ids"),
        (answer([3, 4], [3], generation_settings={}), "another parameter; .*seed; expected: 7"),
        (drawn_with(min_p=0.05), "another parameter; .*min_p; got: 0.05"),
        (drawn_with(samplers=["top_k"]), "another parameter; .*samplers"),
        (drawn_with(temperature=0.8), "another parameter; .*temperature; got: 0.8; expected: 0.7"),
    ],
)
def test_an_answer_to_another_question_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        read_piece(given, question([1, 2], Sampling(temperature=0.7), 2, 7), "engine")


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=12))
def test_no_id_gets_the_log_probability_of_another(drawn: list[tuple[int, bool]]) -> None:
    ids = [index for index, _ in drawn]
    known = [index for index, said in drawn if said]
    piece = read_piece(answer(ids, known), question([1, 2], Sampling(temperature=0.7), len(ids), 7), "engine")
    for (index, said), logprob in zip(drawn, piece.logprobs, strict=True):
        assert logprob in {None, -1.0 * index}
        assert said or logprob is None
    if all(said for _, said in drawn):
        assert None not in piece.logprobs


@pytest.mark.parametrize("world", played.WORLDS)
def test_an_episode_is_exact_trained_and_as_likely_in_transformers(
    policy: LlamaCppPolicy,
    scorer: HFPolicy,
    world: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    episodes = played.play(policy, CHAT, world, tmp_path, tasks=3)
    record_property("largest difference", played.prove(episodes, tmp_path, CHAT, scorer))


# ---- SmolLM2


@pytest.fixture(scope="session")
def gguf_folder() -> Path:
    if not vllm_python().exists():
        pytest.skip(f"no vLLM at {vllm_python()}, whose transformers reads the package's weights: run make vllm")
    return smollm2_gguf(CACHE / "models")


@pytest.fixture(scope="session")
def talker(gguf_folder: Path) -> Iterator[tuple[ChatFormat, LlamaCppPolicy, HFPolicy]]:
    folder = smollm2(CACHE / "models")
    chat = ChatFormat.from_pretrained(folder)
    with LlamaCppPolicy(gguf_folder / "f32.gguf", chat, slots=2, threads=1) as policy:
        yield chat, policy, HFPolicy(folder, chat, device="cpu")


@pytest.mark.deep
@pytest.mark.parametrize("world", played.WORLDS)
def test_a_trained_model_is_as_likely_in_transformers(
    talker: tuple[ChatFormat, LlamaCppPolicy, HFPolicy],
    world: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, policy, scorer = talker
    monkeypatch.setattr(played, "TOLERANCE", TOLERANCE)  # llama.cpp adds up 49,152 probabilities in float32
    episodes = played.play(policy, chat, world, tmp_path)
    record_property("largest difference", played.prove(episodes, tmp_path, chat, scorer))


@pytest.mark.deep
def test_quantised_weights_are_another_model(
    talker: tuple[ChatFormat, LlamaCppPolicy, HFPolicy],
    gguf_folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    chat, whole, scorer = talker
    asked = [
        Request(chat.open([{"role": "user", "content": text}]).ids, Sampling(max_tokens=64), seed=seed)
        for seed, text in enumerate(("What is the capital of France?", "Write a haiku.", "Schreibe 三 Wörter. 🤖"))
    ]
    assert np.abs(difference(scorer, asked, turns_of(whole, asked))).max() < TOLERANCE
    with LlamaCppPolicy(gguf_folder / "q4_1.gguf", chat, slots=2, threads=1) as policy:
        apart = np.abs(difference(scorer, asked, turns_of(policy, asked)))
    record_property("largest difference of Q4_1", float(apart.max()))
    record_property("mean difference of Q4_1", float(apart.mean()))
    assert TOLERANCE < apart.max() < 2
