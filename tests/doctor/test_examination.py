"""The examination: an engine without fault passes, whatever goes wrong is a finding, and it stays cheap."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from toy import CHAT, Reference, ScoringToy, Toy

from agentgym_tok import Completion, Request
from agentgym_tok.doctor import CHECKS, Diagnosis, examine, no_answer
from agentgym_tok.errors import ConfigError, FingerprintMismatch, PolicyError
from agentgym_tok.policies import CallablePolicy, load_policy


def statuses(found: Diagnosis) -> dict[str, str]:
    return {finding.name: finding.status for finding in found.findings}


@pytest.mark.parametrize("scored", [True, False])
def test_an_engine_without_fault_passes_with_fewer_than_400_requests(scored: bool) -> None:
    asked: list[Request] = []

    class Counted(Toy):
        def answer(self, request: Request) -> Completion:
            asked.append(request)
            return super().answer(request)

    done: list[int] = []
    found = examine(Counted(), CHAT, Reference() if scored else None, on_check=done.append)
    expected = dict.fromkeys(CHECKS, "ok") | ({} if scored else {"log-probabilities": "skipped"})
    assert statuses(found) == expected, found.findings
    assert found.ok
    assert found.verdict.startswith("sound: ")
    assert found.requests == len(asked) < 400
    assert found.tokens < 8_000
    assert done == list(range(len(CHECKS)))
    written = json.loads(json.dumps(found.to_dict()))
    assert [finding["name"] for finding in written["findings"]] == list(CHECKS)
    assert (written["ok"], written["verdict"]) == (True, found.verdict)


def test_a_policy_that_can_score_is_its_own_reference() -> None:
    found = examine(ScoringToy(), CHAT)
    assert statuses(found) == dict.fromkeys(CHECKS, "ok")


def test_a_policy_that_always_raises_fails_to_connect_and_nothing_else_is_asked() -> None:
    class Dead(Toy):
        asked = 0

        def answer(self, request: Request) -> Completion:
            self.asked += 1
            raise PolicyError("the engine is gone", got="status 503", fix="start it again")

    policy = Dead()
    found = examine(policy, CHAT)
    assert statuses(found) == dict.fromkeys(CHECKS, "skipped") | {"connection": "failed"}
    assert (found.findings[0].found, found.findings[0].advice) == (
        "the engine is gone; got status 503",
        "start it again",
    )
    assert policy.asked == 1
    assert not found.ok
    assert found.verdict == "NOT sound: connection"


def test_a_check_that_is_broken_off_is_failed_and_the_others_go_on() -> None:
    class Moody(Toy):
        def answer(self, request: Request) -> Completion:
            if request.sampling.top_k == 2:
                raise ZeroDivisionError("of all things")
            return super().answer(request)

    found = examine(Moody(), CHAT)
    assert statuses(found) == dict.fromkeys(CHECKS, "ok") | {"top_k": "failed", "log-probabilities": "skipped"}
    (failure,) = [finding for finding in found.findings if finding.status == "failed"]
    assert failure.found == "ZeroDivisionError: of all things"
    assert failure.advice


def test_answers_that_are_missing_from_a_batch_are_found() -> None:
    class Loses(Toy):
        def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
            return list(super().generate(requests))[: max(1, len(requests) - 1)]

    found = examine(Loses(), CHAT)
    assert statuses(found)["concurrency"] == "failed"
    (finding,) = [finding for finding in found.findings if finding.name == "concurrency"]
    assert "missing or doubled" in finding.found
    assert "one answer for each request" in finding.advice


def test_turns_of_text_are_good_for_evaluation_only() -> None:
    class Text(Toy):
        deterministic = False

        def answer(self, request: Request) -> Completion:
            turn = super().answer(request)
            return Completion(turn.ids_T, finish_reason=turn.finish_reason, ids_exact=False, engine="text")

    found = examine(Text(), CHAT, Reference())
    named = statuses(found)
    assert found.ok
    assert not found.exact
    assert found.verdict == "evaluation only: turns are inexact"
    assert named["ids"] == "warning"
    for name in ("log-probabilities", "temperature 0", "temperature 1", "top_k", "max_tokens", "stop"):
        assert named[name] == "skipped"
    assert {named[name] for name in ("connection", "seeds", "concurrency", "streaming", "deadline")} == {"ok"}


def test_a_function_without_log_probabilities_is_told_so() -> None:
    def answer(ids_T: Any, request: Request) -> Any:
        return Toy().answer(request).ids_T

    found = examine(CallablePolicy(answer, CHAT), CHAT)
    named = statuses(found)
    assert found.ok
    assert named["log-probabilities"] == "warning"
    assert "log-probabilities" in found.verdict
    assert named["temperature 1"] == named["weight versions"] == "skipped"


@pytest.mark.parametrize("name", ["expert", "random"])
def test_experts_are_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match="no engine to examine"):
        examine(load_policy(name, CHAT), CHAT)


def test_a_reference_of_another_format_is_refused() -> None:
    class Other(Reference):
        fingerprint = "f" * 64

    with pytest.raises(FingerprintMismatch, match="other ids"):
        examine(Toy(), CHAT, Other())


def test_an_engine_that_cannot_be_reached_is_a_diagnosis() -> None:
    found = no_answer("vllm:x", PolicyError("nobody answers", where="http://127.0.0.1:1", fix="start it"))
    assert (found.ok, found.requests, found.findings[0].status) == (False, 0, "failed")
    assert [finding.name for finding in found.findings] == list(CHECKS)
