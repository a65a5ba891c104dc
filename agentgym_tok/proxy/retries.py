"""Which requests are asked again: by a key, by the SDKs' header, or by the same body behind its answer."""

from collections.abc import Collection
from dataclasses import dataclass, field

from agentgym_tok.proxy.attempts import Attempts
from agentgym_tok.proxy.drafts import Draft, Evidence
from agentgym_tok.proxy.waiting import Waiting
from agentgym_tok.proxy.wire import BadAsk
from agentgym_tok.trace import Failure

__all__ = ["Retries", "Verdict"]

_REPLACED = Failure("client", "AskedAgain", "the client sent the request again before it was answered")
_LATE = "asked for again, after an earlier answer had been counted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say what a request repeats.

    Args:
        again: The waiting turn of which it is another attempt; None where there is none.
        shown_by: What shows that it was sent before; empty where nothing does.
        doubt: Why its answer counts only if the client goes on from it; empty where there is no doubt.
    """

    again: Attempts | None = None
    shown_by: str = ""
    doubt: str = ""


@dataclass(slots=True)
class Retries:
    """Know the requests of one session.

    Args:
        waiting: Its newest turns.
    """

    waiting: Waiting
    _keys: dict[str, bytes] = field(default_factory=dict)

    def judge(self, evidence: Evidence, drawing: Collection[Draft]) -> Verdict:
        """Say what a request repeats; one with the same key that is still being drawn is broken off.

        The same body alone, while another one of its kind is being drawn or waits, is another sample and no retry.

        Args:
            evidence: What it says of itself.
            drawing: What is being drawn.

        Raises:
            BadAsk: Its key names another request.
        """
        key, body = evidence.key, evidence.body
        if key and self._keys.get(key, body) != body:
            raise BadAsk("this key names another request", where="idempotency-key", fix="take a new key")
        beside = [draft for draft in drawing if draft.evidence.body == body]
        shown_by = "idempotency_key" if key and key in self._keys else "retry_header" if evidence.retries else ""
        if key:
            for draft in beside:
                if draft.evidence.key == key:
                    draft.break_off(_REPLACED)  # nobody waits for it any more
        again = self.waiting.asked_again(body, alone=not beside, explicit=bool(shown_by))
        if again is not None:
            return Verdict(again, shown_by or "same_body")
        return Verdict(None, shown_by, _LATE if shown_by and self.waiting.was_counted(body) else "")

    def note(self, evidence: Evidence) -> bool:
        """Remember a request's key; true where it is new."""
        new = bool(evidence.key) and evidence.key not in self._keys
        if new:
            self._keys[evidence.key] = evidence.body
        return new

    def forget(self, evidence: Evidence) -> None:
        """Forget the key of a request that came to nothing."""
        self._keys.pop(evidence.key, None)
