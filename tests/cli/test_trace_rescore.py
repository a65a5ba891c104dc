"""`trace rescore`: a log of transformers is proved by the same weights, and by no others."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from agentgym_tok import ChatFormat, Request, Sampling  # noqa: E402
from agentgym_tok.cli.main import main  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.trace import Edge, EpisodeHead, RunMeta, TraceStore, Turn, sent_digest  # noqa: E402

CHAT = ChatFormat.builtin()
Capture = pytest.CaptureFixture[str]


SIZES = {"max_position_embeddings": 2048, "initializer_range": 0.3}
"""Far from uniform, so that other weights are far away."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory, save_qwen2: Callable[..., Path]) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"), **SIZES)


@pytest.fixture
def rescored(capsys: Capture) -> Any:
    def rescored(run: Path, weights: Path, *options: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = main(["trace", "rescore", str(run), "--policy", f"hf:{weights}", "--output", "json", *options])
        return status, json.loads(capsys.readouterr().out)

    return rescored


def play(run: Path, weights: Path, *sampling: str) -> Path:
    limits = ["--episodes", "2", "--max-steps", "3", "--sampling.max-tokens", "12", "--out", str(run)]
    assert main(["eval", "alfworld", "--policy", f"hf:{weights}", *limits, *sampling]) == 0
    return run


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        ((), "raw"),
        (("--sampling.temperature", "0"), "raw"),
        (("--sampling.temperature", "0.7"), "processed"),
        (("--sampling.temperature", "1.3", "--sampling.top-k", "40", "--sampling.top-p", "0.9"), "processed"),
    ],
)
def test_an_evaluation_is_proved_by_its_own_weights(
    tmp_path: Path, weights: Path, rescored: Any, sampling: tuple[str, ...], kind: str
) -> None:
    status, found = rescored(play(tmp_path / "run", weights, *sampling), weights)
    (differences,) = found["differences"]
    assert (status, found["ok"], differences["kind"], differences["version"]) == (0, True, kind, "0")
    assert differences["tokens"] > 30
    assert differences["largest_abs"] < 1e-4
    assert differences["kl"] < 1e-6


def test_other_weights_are_far_away(
    tmp_path: Path, weights: Path, rescored: Any, capsys: Capture, save_qwen2: Callable[..., Path]
) -> None:
    run = play(tmp_path / "run", weights)
    status, found = rescored(run, save_qwen2(tmp_path / "other", seed=1, **SIZES))
    (differences,) = found["differences"]
    assert (status, found["ok"]) == (1, False)
    assert differences["mean_abs"] > 0.5
    assert differences["beyond"] > 0.9 * differences["tokens"]
    status, found = rescored(run, tmp_path / "other", "--version", "step-1")
    assert (status, found["ok"], found["differences"][0]["judged"]) == (1, False, False)
    assert main(["trace", "rescore", str(run), "--policy", f"hf:{weights}", "--version", "step-1"]) == 1
    assert "no log-probability drawn by weights 'step-1' in 2 episodes" in capsys.readouterr().out


def test_a_tampered_log_probability_is_found_at_its_place(
    tmp_path: Path, weights: Path, rescored: Any, capsys: Capture
) -> None:
    run = play(tmp_path / "run", weights)
    with TraceStore(run, mode="r") as store:
        meta, texts, episodes = store.meta, store.tokens(), list(store.episodes())
    turn = next(turn for episode in episodes for turn in episode.turns if turn.index == 2)
    logprobs_T = np.array(turn.completion.logprobs_T)
    logprobs_T[3] -= 0.125
    lie = replace(turn, completion=replace(turn.completion, logprobs_T=logprobs_T))
    run = tmp_path / "lie"
    with TraceStore(run, meta=meta) as store:
        store.note_tokens(texts)
        for episode in episodes:
            store.begin(episode.head)
            for told in episode.turns:
                store.append(lie if told is turn else told)
            store.finish(episode.id, episode.status, episode.success, episode.failure)
    status, found = rescored(run, weights)
    (differences,) = found["differences"]
    place = differences["largest"]
    assert (status, differences["beyond"]) == (1, 1)
    assert (place["episode"], place["turn"], place["position"]) == (turn.episode, 2, 3)
    assert place["id"] == turn.completion.ids_T[3]
    assert place["text"] == CHAT.token_text(place["id"])
    assert place["scored"] - place["logged"] == pytest.approx(0.125, abs=1e-4)
    assert main(["trace", "rescore", str(run), "--policy", f"hf:{weights}"]) == 1
    out = capsys.readouterr().out
    assert f"{turn.episode}, turn 2, token 3" in out
    assert "NOT proved: 1 of" in out
    assert main(["trace", "rescore", str(run), "--policy", f"hf:{weights}", "--tolerance", "0.2"]) == 0
    assert "proved: " in capsys.readouterr().out


def test_forks_and_attempts_are_proved_in_their_own_contexts(tmp_path: Path, weights: Path, rescored: Any) -> None:
    policy = HFPolicy(weights, CHAT, device="cpu")
    env = gym.make("agentgym_tok/ALFWorld-v0", chat=CHAT).unwrapped
    env.reset(seed=0)
    meta = RunMeta(fingerprint=CHAT.fingerprint, vocab_size=CHAT.vocab_size, chat=CHAT.reference)
    fork, turns = None, []
    with TraceStore(tmp_path, meta=meta) as store:
        store.begin(EpisodeHead("a", "task"))

        def draw(index: int, edge: Edge, *, attempt: int = 0, used: bool = True, **sampling: Any) -> Turn:
            request = Request(env.context.ids, Sampling(max_tokens=9, **sampling), seed=10 * index + attempt)
            (completion,) = policy.generate([request])
            sent = sent_digest(env.context.root, env.context.ids)
            turn = Turn("a", index, env.context, sent, completion, edge, attempt=attempt, used=used)
            store.append(turn)
            turns.append(turn)
            return turn

        for index in range(4):
            source = Edge("continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0)
            draw(index, source, used=False)
            turn = draw(index, Edge("retry", index, index), attempt=1, temperature=0.8, top_k=30)
            env.step(turn.completion.ids_T)
            fork = env.clone() if index == 1 else fork
        env = fork
        draw(4, Edge("rerender", 1, 4), top_p=0.7)
    status, found = rescored(tmp_path, weights)
    ids = {used: sum(len(turn.completion.ids_T) for turn in turns if turn.used is used) for used in (True, False)}
    assert (status, found["not_scored"]) == (0, {"unused_attempt": ids[False]})
    assert [(one["kind"], one["tokens"]) for one in found["differences"]] == [("processed", ids[True])]
    assert found["differences"][0]["largest_abs"] < 1e-4


def test_what_cannot_be_rescored_is_named(
    tmp_path: Path, weights: Path, shared: Path, unpack: Any, capsys: Capture
) -> None:
    run = play(tmp_path / "run", weights)
    capsys.readouterr()

    def refused(*options: str) -> tuple[int, str]:
        return main(["trace", "rescore", *options]), capsys.readouterr().err

    status, message = refused(str(run), "--policy", "expert")
    assert (status, "cannot score given ids" in message, "hf:PATH" in message) == (2, True, True)
    assert refused(str(tmp_path / "nothing"), "--policy", f"hf:{weights}")[0] == 1
    status, message = refused(str(run), "--policy", f"hf:{weights}", "--chat", str(unpack("qwen2_5")))
    assert (status, "the model does not know" in message) == (2, True)
    small = transformers.AutoConfig.from_pretrained(weights)
    small.max_position_embeddings = 64
    transformers.Qwen2ForCausalLM(small).save_pretrained(tmp_path / "small")
    status, message = refused(str(run), "--policy", f"hf:{tmp_path / 'small'}")
    assert (status, "longer than the model's context" in message) == (1, True)
    with TraceStore(tmp_path / "unnamed", meta=RunMeta(fingerprint="f" * 64, vocab_size=CHAT.vocab_size)):
        pass
    status, message = refused(str(tmp_path / "unnamed"), "--policy", f"hf:{weights}")
    assert (status, "does not name its chat format" in message) == (2, True)
    status, message = refused(str(tmp_path / "unnamed"), "--policy", f"hf:{weights}", "--chat", "builtin")
    assert (status, "another chat format" in message) == (1, True)
