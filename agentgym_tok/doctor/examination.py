"""The examination: every check, in order, none of which can break it off."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.doctor.concurrency import check_concurrency
from agentgym_tok.doctor.connection import check_connection
from agentgym_tok.doctor.deadlines import check_deadlines
from agentgym_tok.doctor.distribution import check_distribution
from agentgym_tok.doctor.finding import Finding, broken, skipped
from agentgym_tok.doctor.ids import check_ids
from agentgym_tok.doctor.logprobs import check_logprobs
from agentgym_tok.doctor.patient import Patient
from agentgym_tok.doctor.sampling import check_greedy, check_limits, check_top_k
from agentgym_tok.doctor.seeds import check_seeds
from agentgym_tok.doctor.stopping import check_room, check_stop, check_stop_strings
from agentgym_tok.doctor.streaming import check_streaming
from agentgym_tok.doctor.versions import check_versions
from agentgym_tok.errors import ConfigError, FingerprintMismatch
from agentgym_tok.types import Policy, Scorer

__all__ = ["CHECKS", "Diagnosis", "examine", "no_answer"]


@dataclass(frozen=True, slots=True)
class _Check:
    run: Callable[[Patient], Finding]
    needs_ids: bool = True


_CONNECTION = "connection"
_CHECKS: dict[str, _Check] = {
    _CONNECTION: _Check(check_connection, needs_ids=False),
    "ids": _Check(check_ids, needs_ids=False),
    "log-probabilities": _Check(check_logprobs),
    "temperature 0": _Check(check_greedy),
    "temperature 1": _Check(check_distribution),
    "top_k": _Check(check_top_k),
    "max_tokens": _Check(check_limits),
    "seeds": _Check(check_seeds, needs_ids=False),
    "concurrency": _Check(check_concurrency, needs_ids=False),
    "streaming": _Check(check_streaming, needs_ids=False),
    "stop": _Check(check_stop),
    "stop strings": _Check(check_stop_strings),
    "no room": _Check(check_room),
    "weight versions": _Check(check_versions),
    "deadline": _Check(check_deadlines, needs_ids=False),
}
CHECKS: tuple[str, ...] = tuple(_CHECKS)
"""Their names, in order."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Hold what an examination found.

    Args:
        policy: Its name.
        findings: One for each check, in order.
        requests: How many requests the policy was sent.
        tokens: How many tokens it drew.
        exact: Whether its turns have the ids that were drawn.
    """

    policy: str
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    exact: bool

    @property
    def ok(self) -> bool:
        """No check failed."""
        return not self._names("failed")

    @property
    def verdict(self) -> str:
        """What the policy is good for, in one sentence."""
        failed, warned, passed = (self._names(status) for status in ("failed", "warning", "ok"))
        if failed:
            return f"NOT sound: {', '.join(failed)}"
        if not self.exact:
            return "evaluation only: turns are inexact"
        if warned:
            return f"sound, but read what is said of {', '.join(warned)}"
        skipped = self._names("skipped")
        return f"sound: {len(passed)} checks passed" + (f", {len(skipped)} could not be made" if skipped else "")

    def _names(self, status: str) -> list[str]:
        return [finding.name for finding in self.findings if finding.status == status]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {**asdict(self), "ok": self.ok, "verdict": self.verdict}


def examine(
    policy: Policy,
    chat: ChatFormat,
    reference: Scorer | None = None,
    *,
    on_check: Callable[[int], None] | None = None,
) -> Diagnosis:
    """Examine a policy with fewer than 400 short requests.

    Args:
        policy: The policy; an expert is none to examine.
        chat: The format that it talks in.
        reference: Knows how likely ids are under the same weights; without one, a policy that can score is its own.
        on_check: Called before each check with how many are done.

    Raises:
        ConfigError: The policy is an expert.
        FingerprintMismatch: The reference knows other ids.
    """
    if policy.wants_info:
        raise ConfigError(
            "an expert reads what the world tells it, so there is no engine to examine",
            where=f"policy {policy.name!r}",
            fix="name an engine, such as hf:PATH or vllm:URL#MODEL",
        )
    if reference is None and isinstance(policy, Scorer):
        reference = policy
    if reference is not None and reference.fingerprint != chat.fingerprint:
        raise FingerprintMismatch(
            "the reference knows other ids than the chat format",
            where="reference",
            got=reference.fingerprint[:16],
            expected=f"{chat.fingerprint[:16]} ({chat.reference})",
        )
    patient = Patient(policy, chat, reference)
    findings: list[Finding] = []
    for done, (name, check) in enumerate(_CHECKS.items()):
        if on_check is not None:
            on_check(done)
        findings.append(replace(_found(patient, check, findings), name=name))
    tokens = sum(len(turn.ids_T) for turn in patient.turns)
    return Diagnosis(policy.name, tuple(findings), patient.requests, tokens, patient.exact)


def no_answer(policy: str, error: Exception) -> Diagnosis:
    """Return the diagnosis of a policy that could not even be made."""
    found = [broken(error), *(skipped(_SILENT) for _ in CHECKS[1:])]
    findings = tuple(replace(finding, name=name) for finding, name in zip(found, CHECKS, strict=True))
    return Diagnosis(policy, findings, 0, 0, exact=False)


_SILENT = "the policy does not answer"


def _found(patient: Patient, check: _Check, findings: list[Finding]) -> Finding:
    if findings and findings[0].status == "failed":
        return skipped(_SILENT)
    if check.needs_ids and not patient.exact:
        return skipped("turns are inexact: their ids are guessed from text")
    try:
        return check.run(patient)
    except Exception as error:  # noqa: BLE001  # whatever goes wrong is what was to be found out
        return broken(error)
