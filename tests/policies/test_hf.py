"""A transformers model: the log-probabilities are those of the ids that were drawn, in any batch."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.errors import (  # noqa: E402
    ConfigError,
    DataMissing,
    FingerprintMismatch,
    PolicyError,
    TransientPolicyError,
)
from agentgym_tok.policies import hf, load_policy  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.policies.hf_turn import processed  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402
from agentgym_tok.types import Scorer, ScoreRequest  # noqa: E402

CHAT = ChatFormat.builtin()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, save_qwen2: Callable[..., Path]) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"), hidden_size=64, intermediate_size=64)


@pytest.fixture(scope="session")
def policy(folder: Path) -> HFPolicy:
    return HFPolicy(folder, CHAT, device="cpu", version="7")


def requests(count: int, **sampling: float) -> list[Request]:
    draw = np.random.default_rng(0)
    options = Sampling(**{"max_tokens": 12, **sampling})  # type: ignore[arg-type]
    return [
        Request(as_ids(draw.integers(CHAT.vocab_size, size=3 + 5 * index)), options, seed=index)
        for index in range(count)
    ]


def turns_of(policy: HFPolicy, asked: Sequence[Request]) -> list[Completion]:
    answers = policy.generate(asked)
    turns = [answer for answer in answers if isinstance(answer, Completion)]
    assert len(turns) == len(answers) == len(asked)
    return turns


def exact(folder: Path, request: Request, ids_T: np.ndarray) -> np.ndarray:
    """Log-probabilities by one whole forward pass, from which nothing above was computed."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    whole = torch.tensor([[*request.ids_T.tolist(), *ids_T.tolist()]])
    with torch.inference_mode():
        logits = model(whole).logits[0, len(request.ids_T) - 1 : -1]
    rows = torch.stack([processed(row, request.sampling) for row in logits])
    return rows[torch.arange(len(ids_T)), torch.tensor(ids_T.astype(np.int64))].numpy()


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
def test_log_probabilities_are_those_of_a_whole_forward_pass(
    folder: Path, policy: HFPolicy, sampling: dict[str, float], kind: str
) -> None:
    asked = requests(4, **sampling)
    for request, turn in zip(asked, turns_of(policy, asked), strict=True):
        assert turn.logprobs == kind
        assert turn.logprobs_T is not None
        np.testing.assert_allclose(turn.logprobs_T, exact(folder, request, turn.ids_T), atol=2e-4)
        assert turn.weight_versions == (("7", 0, len(turn.ids_T)),)
        assert turn.sampling == request.sampling


def test_a_request_gets_the_same_ids_alone_and_in_a_batch(policy: HFPolicy) -> None:
    asked = requests(6)
    together = turns_of(policy, asked)
    for request, turn in zip(asked, together, strict=True):
        (alone,) = turns_of(policy, [request])
        assert np.array_equal(alone.ids_T, turn.ids_T)
    small = HFPolicy.__new__(HFPolicy)
    small.__dict__ = {**policy.__dict__, "_batch_size": 2}
    assert [turn.ids_T.tolist() for turn in turns_of(small, asked)] == [turn.ids_T.tolist() for turn in together]


def test_seeds_differ_and_repeat(policy: HFPolicy) -> None:
    ids_T = as_ids([5, 6, 7])
    turns = [turns_of(policy, [Request(ids_T, Sampling(max_tokens=8), seed=seed)])[0] for seed in (1, 2, 1)]
    assert np.array_equal(turns[0].ids_T, turns[2].ids_T)
    assert not np.array_equal(turns[0].ids_T, turns[1].ids_T)


def test_turns_end_at_stop_tokens_limits_and_the_models_room(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    (cut,) = turns_of(policy, requests(1, max_tokens=3))
    assert (len(cut.ids_T), cut.finish_reason) == (3, "length")
    full = Request(as_ids(np.ones(254, np.int32)), Sampling(max_tokens=50))
    over = Request(as_ids(np.ones(256, np.int32)), Sampling(max_tokens=50))
    almost, none = turns_of(policy, [full, over])
    assert len(almost.ids_T) <= 2
    assert (len(none.ids_T), none.finish_reason) == (0, "truncated")
    greedy = requests(1, temperature=0)
    first = int(turns_of(policy, greedy)[0].ids_T[0])
    monkeypatch.setattr(CHAT, "stop_ids", (first,))
    (stopped,) = turns_of(policy, greedy)
    assert (stopped.ids_T.tolist(), stopped.finish_reason) == ([first], "stop")


def test_logits_that_are_no_numbers_cost_their_own_turn(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests(3)
    well = turns_of(policy, asked)
    logits, passes = policy._logits, iter(range(10**6))

    def broken(*given: Any, **options: Any) -> Any:
        logits_NTV = logits(*given, **options)
        if next(passes) == 2:
            logits_NTV[1, -1, 7] = float("nan")
        return logits_NTV

    monkeypatch.setattr(policy, "_logits", broken)
    first, failed, last = policy.generate(asked)
    assert isinstance(failed, PolicyError)
    assert "no numbers; where: token 2 of a turn" in str(failed)
    for turn, other in ((first, well[0]), (last, well[2])):
        assert isinstance(turn, Completion)
        assert np.array_equal(turn.ids_T, other.ids_T)


def test_a_batch_that_does_not_fit_is_halved(policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests(5)
    well = turns_of(policy, asked)
    decode, sizes = policy._decode, []

    def narrow(rows: Any) -> None:
        sizes.append(len(rows))
        if len(rows) > 2 or any(row.request is asked[4] for row in rows):
            raise RuntimeError("out of memory")
        decode(rows)

    monkeypatch.setattr(policy, "_decode", narrow)
    *turns, failed = policy.generate(asked)
    assert sizes == [5, 2, 3, 1, 2, 1, 1]
    assert isinstance(failed, TransientPolicyError)
    assert "RuntimeError: out of memory" in str(failed)
    for turn, other in zip(turns, well, strict=False):
        assert isinstance(turn, Completion)
        assert np.array_equal(turn.ids_T, other.ids_T)


@pytest.mark.parametrize(
    ("message", "transient"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_no_memory_may_pass_and_a_broken_model_does_not(
    policy: HFPolicy, monkeypatch: pytest.MonkeyPatch, message: str, *, transient: bool
) -> None:
    def fail(rows: Any) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(policy, "_decode", fail)
    (failed,) = policy.generate(requests(1))
    assert isinstance(failed, PolicyError)
    assert failed.transient is transient
    assert message in str(failed)


def test_a_turn_ends_where_its_text_completes_a_stop_string(policy: HFPolicy) -> None:
    (whole,) = turns_of(policy, requests(1))
    end = next(place for place in range(5, 12) if "\ufffd" not in CHAT.decode(whole.ids_T[place - 2 : place]))
    stop = CHAT.decode(whole.ids_T[end - 2 : end])
    assert stop not in CHAT.decode(whole.ids_T[: end - 1])
    (turn,) = turns_of(policy, [replace(requests(1)[0], sampling=Sampling(max_tokens=12, stop=(stop,)))])
    assert (turn.ids_T.tolist(), turn.finish_reason) == (whole.ids_T[:end].tolist(), "stop")
    assert turn.logprobs == whole.logprobs == "raw"
    assert turn.logprobs_T is not None
    assert whole.logprobs_T is not None
    np.testing.assert_array_equal(turn.logprobs_T, whole.logprobs_T[:end])


def tiny(path: Path, vocab_size: int) -> Path:
    config = transformers.Qwen2Config(
        vocab_size=vocab_size, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(path)
    return path


def test_a_missing_model_and_a_foreign_vocabulary_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no model"):
        HFPolicy(tmp_path, CHAT)
    with pytest.raises(ConfigError, match="does not know"):
        HFPolicy(tiny(tmp_path / "small", 10), CHAT)
    with pytest.raises(ConfigError, match=r"more ids than the chat format, and no tokenizer"):
        HFPolicy(tiny(tmp_path / "large", CHAT.vocab_size + 1), CHAT)


def with_tokenizer(path: Path, text: str) -> Path:
    (path / "tokenizer.json").write_text(text, encoding="utf-8")
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}', encoding="utf-8")
    return path


def test_a_model_takes_the_ids_of_its_own_tokenizer_only(tmp_path: Path) -> None:
    text = (resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text(encoding="utf-8")
    path = with_tokenizer(tiny(tmp_path / "model", CHAT.vocab_size + 64), text)
    assert HFPolicy(path, CHAT, device="cpu").fingerprint == CHAT.fingerprint  # an embedding may have more rows
    rules = json.loads(text)
    vocabulary = rules["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    with pytest.raises(FingerprintMismatch, match=r"another vocabulary than the model; .*next: use ChatFormat.from_"):
        HFPolicy(with_tokenizer(path, json.dumps(rules)), CHAT)
    rules = json.loads(text)
    rules["added_tokens"].pop()
    with pytest.raises(FingerprintMismatch, match=r"another vocabulary"):  # the same ids, but one is no control token
        HFPolicy(with_tokenizer(path, json.dumps(rules)), CHAT)
    with pytest.raises(FingerprintMismatch, match="cannot be read"):
        HFPolicy(with_tokenizer(path, "{}"), CHAT)


def test_the_builtin_format_is_not_that_of_a_real_model(
    unpack: Callable[[str], Path], qwen2_5: ChatFormat, tmp_path: Path
) -> None:
    path = tiny(tmp_path / "model", 151_936)
    for file in unpack("qwen2_5").iterdir():
        shutil.copy(file, path)
    assert HFPolicy(path, qwen2_5, device="cpu").fingerprint == qwen2_5.fingerprint
    with pytest.raises(FingerprintMismatch, match=r"another vocabulary than the model; .*got: 4096 ids in 'builtin'"):
        load_policy(f"hf:{path}", CHAT)


SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=0.6),
    Sampling(top_k=9),
    Sampling(temperature=1.5, top_k=50, top_p=0.4),
)


@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_scores_are_those_of_a_whole_forward_pass(
    folder: Path, policy: HFPolicy, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(hf, "_CHUNK", chunk)
    ids_T = as_ids(np.random.default_rng(1).integers(CHAT.vocab_size, size=60))
    parts = [(start, start + 1 + 2 * place, SAMPLINGS[place]) for place, start in enumerate((1, 4, 7, 20, 51))]
    asked = [ScoreRequest(ids_T, tuple(parts)), ScoreRequest(ids_T, ()), ScoreRequest(ids_T[:2], ((1, 2, Sampling()),))]
    assert isinstance(policy, Scorer)
    scores, nothing, short = policy.score(asked)
    raw = [exact(folder, Request(ids_T[:start], Sampling()), ids_T[start:end]) for start, end, _ in parts]
    drawn = [exact(folder, Request(ids_T[:start], sampling), ids_T[start:end]) for start, end, sampling in parts]
    np.testing.assert_allclose(scores.raw_S, np.concatenate(raw), atol=2e-5)
    np.testing.assert_allclose(scores.processed_S, np.concatenate(drawn), atol=2e-5)
    assert np.isneginf(scores.processed_S).any()
    assert (len(nothing.raw_S), len(nothing.processed_S)) == (0, 0)
    np.testing.assert_allclose(short.raw_S, raw[0][:1], atol=2e-5)
    assert {one.version for one in (scores, nothing, short)} == {"7"}


def test_what_cannot_be_scored_is_named(folder: Path, policy: HFPolicy) -> None:
    full = as_ids(np.ones(257, np.int32))
    assert len(policy.score([ScoreRequest(full, ((200, 256, Sampling()),))])[0].raw_S) == 56
    with pytest.raises(PolicyError, match=r"longer than the model's context; where: hf:.*; got: 257 ids"):
        policy.score([ScoreRequest(full, ((200, 257, Sampling()),))])
    broken = HFPolicy(folder, CHAT, device="cpu")
    with torch.no_grad():
        broken._model.lm_head.weight[5] = float("nan")
    with pytest.raises(PolicyError, match="no numbers"):
        broken.score([ScoreRequest(full, ((1, 2, Sampling()),))])


@settings(max_examples=50, deadline=None)
@given(
    logits=st.lists(st.floats(-5, 5), min_size=2, max_size=12),
    temperature=st.floats(0.1, 3),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1),
)
def test_processed_keeps_the_smallest_nucleus(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    logprobs = processed(torch.tensor(logits), sampling).double().exp()
    assert float(logprobs.sum()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(processed(torch.tensor([logits[::-1], logits]), sampling)[1].double().exp(), logprobs)
    kept = int((logprobs > 0).sum())
    assert kept >= 1
    plain = torch.softmax(torch.tensor(logits) / temperature, -1)
    assert float(plain[logprobs > 0].min()) >= float(plain[logprobs == 0].max()) if kept < len(logits) else True
    if 0 < top_k < len(logits) and top_p == 1:
        assert kept >= top_k
