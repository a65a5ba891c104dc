"""Rescoring compares each logged log-probability with the model's, once, and says where it differs."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError, FingerprintMismatch, PolicyError
from agentgym_tok.policies import RandomPolicy
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Edge, TraceStore, Turn, account
from agentgym_tok.trace.rescore import rescore
from agentgym_tok.types import Sampling, ScoreRequest, Scores

COLD = Sampling(temperature=0.5)


def likelihood(ids_T: Sequence[int], place: int, temperature: float) -> float:
    """Stand for a model: each log-probability depends on all ids before, and on the temperature."""
    return -(1 + (sum(ids_T[: place + 1]) * (place + 3)) % 17) / 8 / (temperature or 1)


class Model:
    """Score by `likelihood`, and remember what was asked."""

    def __init__(self, fingerprint: str, *, version: str = "v1", change: Callable[[Any], Any] = lambda x: x) -> None:
        self.fingerprint = fingerprint
        self.version = version
        self.change = change
        self.asked: list[ScoreRequest] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.asked += requests
        return [self._one(request) for request in requests]

    def _one(self, request: ScoreRequest) -> Scores:
        ids = request.ids_T.tolist()
        places = [(place, sampling) for start, end, sampling in request.parts for place in range(start, end)]
        raw = [likelihood(ids, place, 1) for place, _ in places]
        processed = [likelihood(ids, place, sampling.temperature) for place, sampling in places]
        return Scores(self.change(np.array(raw, np.float32)), np.array(processed, np.float32), self.version)


def logged(context: Context, ids: list[int], temperature: float = 1) -> list[float]:
    whole = [*context.ids.tolist(), *ids]
    return [likelihood(whole, len(context) + place, temperature) for place in range(len(ids))]


def says(make: Any, name: str, index: int, context: Context, ids: list[int], **fields: Any) -> Turn:
    """Return a turn as the model would have drawn it."""
    completion = {"sampling": Sampling(), "weight_versions": (("v1", 0, len(ids)),), **fields.pop("completion", {})}
    temperature = completion["sampling"].temperature if completion.get("logprobs") == "processed" else 1
    fields.setdefault("logprobs", logged(context, ids, temperature))
    return make.turn(name, index, context, ids, completion=completion, **fields)


def write(make: Any, run: Path, *walks: list[Turn]) -> Path:
    with TraceStore(run, meta=make.meta, token_text=lambda index: f"<{index}>") as store:
        for turns in walks:
            store.begin(make.head(turns[0].episode))
            for turn in turns:
                store.append(turn)
            store.finish(turns[0].episode)
    return run


def conversation(make: Any, name: str, **last: Any) -> list[Turn]:
    first = says(make, name, 0, make.prompt(1, 2, 3), [7, 8])
    second = says(make, name, 1, make.after(first, 20, 21), [9], completion={"logprobs": "processed", "sampling": COLD})
    return [first, second, says(make, name, 2, make.after(second, 30), [5, 6, 4], **last)]


def test_a_true_log_is_proved_and_each_conversation_is_one_sequence(make: Any, tmp_path: Path) -> None:
    model = Model(make.meta.fingerprint)
    found = rescore(write(make, tmp_path, conversation(make, "a"), conversation(make, "b")), model)
    assert found.ok
    assert (found.episodes, found.version, found.not_scored) == (2, "v1", {})
    assert [(one.kind, one.tokens, one.largest_abs) for one in found.differences] == [
        ("processed", 2, 0),
        ("raw", 10, 0),
    ]
    assert [[(start, end) for start, end, _ in request.parts] for request in model.asked] == [
        [(3, 5), (7, 8), (9, 12)]
    ] * 2
    assert model.asked[0].parts[1][2] == COLD
    assert rescore(tmp_path, model, episodes=1).episodes == 1


def test_a_tampered_log_probability_is_found_at_its_place(make: Any, tmp_path: Path) -> None:
    true = conversation(make, "a")[2].completion.logprobs_T
    false = [true[0], true[1] + 0.25, true[2] - 0.05]
    run = write(make, tmp_path, conversation(make, "a", logprobs=false), conversation(make, "b"))
    found = rescore(run, Model(make.meta.fingerprint))
    assert not found.ok
    (raw,) = [one for one in found.differences if one.kind == "raw"]
    place = raw.largest
    assert (place.episode, place.turn, place.position, place.id, place.text) == ("a", 2, 1, 6, "<6>")
    assert (place.logged, place.scored) == (pytest.approx(true[1] + 0.25), pytest.approx(true[1]))
    assert raw.tokens == 10
    assert raw.beyond == 2
    assert raw.largest_abs == pytest.approx(0.25)
    assert raw.mean_abs == pytest.approx(0.3 / 10)
    assert raw.mean == pytest.approx(-0.2 / 10)
    assert raw.kl == pytest.approx((math.expm1(-0.25) + 0.25 + math.expm1(0.05) - 0.05) / 10, rel=1e-5)
    assert rescore(run, Model(make.meta.fingerprint), tolerance=0.26).ok
    assert rescore(run, Model(make.meta.fingerprint), tolerance=0.2).differences[1].beyond == 1


def test_a_false_context_is_found_where_it_begins(make: Any, tmp_path: Path) -> None:
    turns = conversation(make, "a")
    other = make.after(turns[1], 31)
    turns[2] = says(make, "a", 2, other, [5, 6, 4], logprobs=turns[2].completion.logprobs_T.tolist())
    found = rescore(write(make, tmp_path, turns), Model(make.meta.fingerprint))
    assert [one.largest.turn for one in found.differences if one.beyond] == [2]


def test_forks_and_attempts_are_scored_in_their_own_contexts(make: Any, tmp_path: Path) -> None:
    first = says(make, "a", 0, make.prompt(1, 2, 3), [7, 8], used=False)
    again = says(make, "a", 0, first.context, [7, 5], edge=Edge("retry", 0, 0), attempt=1)
    second = says(make, "a", 1, make.after(again, 20), [9])
    fork = says(make, "a", 2, make.after(again, 21, 22), [6], edge=Edge("rerender", 0, 2))
    model = Model(make.meta.fingerprint)
    found = rescore(write(make, tmp_path, [first, again, second, fork]), model)
    assert found.ok
    assert found.not_scored == {"unused_attempt": 2}
    assert [[(start, end) for start, end, _ in request.parts] for request in model.asked] == [
        [(3, 5), (6, 7)],
        [(7, 8)],
    ]


def test_what_is_not_scored_is_counted_under_its_reason(make: Any, tmp_path: Path) -> None:
    missing = {"logprobs_T": None, "logprobs": "missing"}
    unknown = {"logprobs": "sentinel", "sampling": Sampling()}
    turns = [
        says(make, "a", 0, make.prompt(1), [1, 2]),
        says(make, "a", 1, make.prompt(2), [3], edge=Edge("fresh_prompt", None, 1), completion=missing),
        says(make, "a", 2, make.prompt(3), [4, 5, 6], edge=Edge("fresh_prompt", None, 2), completion=unknown),
    ]
    found = rescore(write(make, tmp_path, turns), Model(make.meta.fingerprint))
    assert found.ok
    assert found.not_scored == {"no_logprobs": 1, "sentinel_logprobs": 3}
    assert sum(one.tokens for one in found.differences) == 2


def test_tokens_of_other_weights_are_shown_and_not_judged(make: Any, tmp_path: Path) -> None:
    versions = {"weight_versions": (("v1", 0, 1), ("v2", 1, 2))}
    true = logged(make.prompt(1), [1, 2, 3])
    turns = [
        says(make, "a", 0, make.prompt(1), [1, 2, 3], logprobs=[true[0], true[1] - 1, true[2]], completion=versions)
    ]
    run = write(make, tmp_path, turns)
    found = rescore(run, Model(make.meta.fingerprint))
    assert found.ok
    assert [(one.version, one.judged, one.tokens, one.beyond) for one in found.differences] == [
        (None, True, 1, 0),
        ("v1", True, 1, 0),
        ("v2", False, 1, 1),
    ]
    assert found.differences[2].largest.position == 1
    assert not rescore(run, Model(make.meta.fingerprint), version="v2").ok
    assert rescore(run, Model(make.meta.fingerprint, version="v3")).ok  # tokens of unnamed weights are judged always


def test_nothing_judged_proves_nothing(make: Any, tmp_path: Path) -> None:
    run = write(make, tmp_path / "other", conversation(make, "a"))
    found = rescore(run, Model(make.meta.fingerprint, version="v9"))
    assert (found.ok, found.judged, len(found.differences)) == (False, (), 2)
    with TraceStore(tmp_path / "empty", meta=make.meta):
        pass
    assert not rescore(tmp_path / "empty", Model(make.meta.fingerprint)).ok


def test_a_token_that_could_not_have_been_drawn_is_no_mean_and_no_proof(make: Any, tmp_path: Path) -> None:
    def forbid(raw_S: np.ndarray) -> np.ndarray:
        raw_S[3] = -np.inf
        return raw_S

    found = rescore(write(make, tmp_path, conversation(make, "a")), Model(make.meta.fingerprint, change=forbid))
    raw = found.differences[1]
    assert (found.ok, raw.impossible, raw.beyond, raw.mean_abs, raw.largest_abs) == (False, 1, 1, 0, 0)
    assert (raw.largest.turn, raw.largest.position, raw.largest.scored) == (2, 0, None)
    assert "Infinity" not in json.dumps(found.to_dict())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda raw_S: raw_S[:-1], "belongs to each id"),
        (lambda raw_S: raw_S * np.nan, "no log-probability"),
        (lambda raw_S: -raw_S, "no log-probability"),
    ],
)
def test_scores_that_cannot_be_are_refused(
    make: Any, tmp_path: Path, change: Callable[[Any], Any], problem: str
) -> None:
    with pytest.raises(PolicyError, match=problem):
        rescore(write(make, tmp_path, conversation(make, "a")), Model(make.meta.fingerprint, change=change))


def test_a_scorer_that_drops_a_sequence_is_refused(make: Any, tmp_path: Path) -> None:
    model = Model(make.meta.fingerprint)
    model.score = lambda requests: []  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="left some out"):
        rescore(write(make, tmp_path, conversation(make, "a")), model)


def test_a_policy_that_cannot_score_and_one_of_another_format_are_refused(
    make: Any, tmp_path: Path, builtin: Any
) -> None:
    run = write(make, tmp_path, conversation(make, "a"))
    with pytest.raises(ConfigError, match=r"cannot score given ids; .* got: random; expected: hf:PATH"):
        rescore(run, RandomPolicy(builtin))
    with pytest.raises(FingerprintMismatch, match="another chat format"):
        rescore(run, Model(builtin.fingerprint))


@settings(max_examples=40)
@given(st.data())
def test_each_id_is_scored_once_or_counted_under_a_reason(
    make: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = tmp_path_factory.mktemp("run")
    with TraceStore(run, meta=make.meta) as store:
        for head, turns in make.tree(data).forest():
            store.begin(head)
            for turn in turns:
                store.append(turn)
        accounting = account(store.episodes())
    found = rescore(run, Model(make.meta.fingerprint))
    assert sum(one.tokens for one in found.differences) == accounting.trained
    assert found.not_scored == accounting.masked
