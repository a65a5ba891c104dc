"""The policy whose weights ship: it picks them by how a context begins."""

import json
from pathlib import Path

import numpy as np
import pytest
import random_model

from agentgym_tok import ChatFormat, Completion, Request, Sampling
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, FingerprintMismatch, PolicyError, UnknownName
from agentgym_tok.policies.small import builtin
from agentgym_tok.policies.small.builtin import BuiltinPolicy
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Message, ScoreRequest

CHAT = ChatFormat.builtin()
OPENINGS = {"house": ["You are in a house.", "Clean the house"], "shop": ["You are in a shop."]}


def add(weights: Path, name: str, openings: list[str], seed: int) -> None:
    random_model.write(weights / name, seed=seed)
    about = {"fingerprint": CHAT.fingerprint, "openings": openings}
    (weights / name / "about.json").write_text(json.dumps(about), encoding="utf-8")


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seed, (name, openings) in enumerate(OPENINGS.items()):
        add(tmp_path, name, openings, seed)
    monkeypatch.setattr(builtin, "_WEIGHTS", tmp_path)
    return tmp_path


def asked(text: str, seed: int = 0) -> Request:
    context = CHAT.open([Message("system", text), Message("user", "Go on.")])
    return Request(context.ids, Sampling(max_tokens=6), seed=seed, conversation=text)


def test_each_context_is_answered_by_the_weights_that_know_how_it_begins(weights: Path) -> None:
    policy = BuiltinPolicy("", CHAT)
    texts = ["You are in a shop. Buy.", "You are in a house. Cook.", "You are in space.", "Clean the house, please."]
    asks = [asked(text) for text in texts]
    turns = policy.generate(asks)
    names = ["shop", "house", "", "house"]
    for request, turn, name in zip(asks, turns, names, strict=True):
        if not name:
            assert isinstance(turn, PolicyError)
            assert "know no such task" in str(turn)
            assert "builtin:house, builtin:shop" in str(turn)
            continue
        (want,) = NumpyPolicy(weights / name, CHAT).generate([request])
        assert isinstance(turn, Completion)
        assert isinstance(want, Completion)
        assert turn.ids_T.tolist() == want.ids_T.tolist()
        assert turn.engine == f"builtin:{name}"
        whole = as_ids(np.concatenate([request.ids_T, turn.ids_T]))
        part = (len(request.ids_T), len(whole), request.sampling)
        (score,) = policy.score([ScoreRequest(whole, (part,))])
        assert turn.logprobs_T is not None
        assert score.raw_S.tobytes() == turn.logprobs_T.tobytes()
        assert score.version == turn.weight_versions[0][0]
    assert len({turn.weight_versions for turn in turns if isinstance(turn, Completion)}) == 2
    assert policy.deterministic
    assert (policy.context_limit, policy.listens, policy.fingerprint) == (256, True, CHAT.fingerprint)
    with pytest.raises(PolicyError, match="no such task"):
        policy.score([ScoreRequest(asks[2].ids_T, ())])
    with pytest.raises(PolicyError, match=r"which weights.*builtin\?world="):
        policy.update_weights({}, "1")


def test_weights_that_are_named_answer_everything(weights: Path) -> None:
    policy = BuiltinPolicy("", CHAT, world="shop", version="mine")
    (turn,) = policy.generate([asked("You are in space.")])
    assert isinstance(turn, Completion)
    assert turn.weight_versions == (("mine", 0, len(turn.ids_T)),)
    policy.update_weights(random_model.weights(weights / "house", seed=0), "next")
    (after,) = policy.generate([asked("You are in space.")])
    (want,) = BuiltinPolicy("", CHAT, world="house").generate([asked("You are in space.")])
    assert isinstance(after, Completion)
    assert isinstance(want, Completion)
    assert after.ids_T.tolist() == want.ids_T.tolist()
    assert after.weight_versions[0][0] == "next"


def test_a_model_without_openings_takes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "all", [], 0)
    monkeypatch.setattr(builtin, "_WEIGHTS", tmp_path)
    (turn,) = BuiltinPolicy("", CHAT).generate([asked("You are in space.")])
    assert isinstance(turn, Completion)


def test_wrong_names_formats_and_files_are_named(
    weights: Path, qwen2_5: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownName, match=r"hose.*house"):
        BuiltinPolicy("", CHAT, world="hose")
    with pytest.raises(ConfigError, match=r"takes no path; .*next: write builtin\?world=house"):
        BuiltinPolicy("house", CHAT)
    with pytest.raises(FingerprintMismatch, match="another chat format"):
        BuiltinPolicy("", qwen2_5)
    (weights / "shop" / "about.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataCorrupt, match="cannot be read"):
        BuiltinPolicy("", CHAT)
    monkeypatch.setattr(builtin, "_WEIGHTS", weights / "nowhere")
    with pytest.raises(DataMissing, match="no weights ship"):
        BuiltinPolicy("", CHAT)
