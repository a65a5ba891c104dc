"""Turns that wait to be written until it is known which attempt at each of them the client used.

A trace is only appended to and marks one attempt of a turn as used, so the newest turns of a session stay in memory
until the client goes on, or nobody can ask for them again. A killed process loses those, as it loses a turn in flight.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentgym_tok.proxy.attempts import Attempt, Attempts, Delivery
from agentgym_tok.proxy.contexts import Prepared
from agentgym_tok.proxy.drafts import Draft
from agentgym_tok.trace import Lineage, Turn

__all__ = ["RETRY_WINDOW_S", "Waiting"]

RETRY_WINDOW_S = 30.0
"""So long after an answer a client may still ask for it again, in seconds; SDKs wait for 8 at most."""


class Waiting:
    """Keep the newest turns of a session, in their order.

    Args:
        lineage: The session's turns, for whom it matters which attempt was used.
    """

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._turns: deque[Attempts] = deque()
        self._counted: set[bytes] = set()

    def asked_again(self, body: bytes, *, alone: bool, explicit: bool) -> Attempts | None:
        """Return the turn whose answer went out, or was broken off, and that a client asks for once more.

        Args:
            body: Digest of the request.
            alone: No other request with this body is being drawn.
            explicit: The request says that it was sent before; else only its body does, where it can mean one turn.
        """
        same = [turns for turns in self._turns if turns.body == body and not turns.settled and not turns.taken]
        if explicit:
            return same[-1] if same else None
        return same[0] if alone and len(same) == 1 and same[0].ended else None

    def was_counted(self, body: bytes) -> bool:
        """Tell whether an answer to a request with this body counts as used already."""
        return body in self._counted or any(turns.body == body and turns.used for turns in self._turns)

    def place(self, draft: Draft) -> Attempts:
        """Return where a turn belongs: to the attempts before it, or to a place of its own."""
        again = draft.again
        if again is not None and not again.settled:
            last = again.index == len(self._lineage) - 1
            if last and again.attempts[-1].given.turn.context.digest == draft.context.digest:
                return again
            again.doubt = "asked for again"
            again.end()
            self.refresh(again)
        turns = Attempts(len(self._lineage), draft.evidence.body, doubt=draft.doubt)
        self._turns.append(turns)
        return turns

    def withdraw(self, turns: Attempts) -> None:
        """Take a place back of which nothing could be recorded."""
        if not turns.attempts:
            self._turns.remove(turns)

    def note_taken(self, prepared: Prepared) -> None:
        """Find out from a conversation which answers its client used: those that stand in it at their own place."""
        for turns in self._turns:
            told = [one for one in turns.attempts if one.is_turn and one.delivery != "none"]
            found = [one for one in told if one.given is prepared.source or prepared.holds(one.given)]
            source = [one for one in found if one.given is prepared.source]
            if turns.taken is None and len(source or found) == 1:
                turns.taken = (source or found)[0]
                self.refresh(turns)

    def deliver(self, recorded: Sequence[Attempt], delivery: Delivery) -> None:
        """Say how much of an answer the client got."""
        turns = next((turns for turns in self._turns if recorded[0] in turns.attempts), None)
        if turns is not None:
            for attempt in recorded:
                attempt.delivery = delivery
            turns.end()
            self.refresh(turns)

    def refresh(self, turns: Attempts) -> None:
        """Let everybody know which attempt counts as used now."""
        used = turns.used
        for attempt in turns.attempts:
            given = attempt.given
            if given.turn.used != (attempt is used):
                given.turn = replace(given.turn, used=attempt is used)
                self._lineage.settle(given.turn)

    def settle(self, *, alone: bool) -> None:
        """Settle what the client will not ask for again.

        Args:
            alone: It asks for something else, and nothing of the session is being drawn beside it.
        """
        now = time.monotonic()
        for turns in self._turns:
            late = now - turns.ended > RETRY_WINDOW_S
            turns.settled |= bool(turns.ended) and (alone or late or turns.taken is not None)

    def rewarded(self) -> Attempts | None:
        """Return the newest turn that the client used; where it used none, the newest that it may have used."""
        used = next((turns for turns in reversed(self._turns) if turns.used), None)
        may_be = (turns for turns in reversed(self._turns) if any(one.is_turn for one in turns.attempts))
        return used or next(may_be, None)

    def written(self, *, last: bool = False) -> Iterator[Turn]:
        """Let go of the settled turns; the newest used one stays, since rewards may still come for it.

        Args:
            last: Nothing comes any more: let go of all.
        """
        waiting = self._turns
        while waiting and (last or (waiting[0].settled and any(later.used for later in list(waiting)[1:]))):
            turns = waiting.popleft()
            if turns.used:
                self._counted.add(turns.body)
            yield from turns.turns()
