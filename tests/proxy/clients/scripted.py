"""A policy that says what a test wrote, token by token, and what has to be true of the trace that comes of it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat, Completion, Message, ToolCall
from agentgym_tok.chat.stops import stop_end
from agentgym_tok.policies import BasePolicy
from agentgym_tok.policies.base import finish_reason
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, Turn, mask_reason, rows, verify
from agentgym_tok.types import Delta, Request

Say = Callable[[str, int], Message]
"""The next turn, from the context as text and the number of turns before it."""


def says(text: str, *calls: tuple[str, Mapping[str, Any]]) -> Message:
    """Write a turn."""
    made = (ToolCall(name, arguments, f"own_{place}") for place, (name, arguments) in enumerate(calls))
    return Message("assistant", text, tool_calls=tuple(made))


class Scripted(BasePolicy):
    """Say what a test wrote.

    Args:
        chat: Writes it as the template does.
        say: What to say.
        tools: Some dialects take the types of arguments from them.
        hangs: The turns, by number, that never end: half of one comes, then nothing.
    """

    name = "scripted"

    def __init__(
        self, chat: ChatFormat, say: Say, *, tools: Sequence[Mapping[str, Any]] = (), hangs: Sequence[int] = ()
    ) -> None:
        self._chat, self._say, self._tools, self._hangs = chat, say, tools, frozenset(hangs)
        self.drawn: list[Ids] = []
        """All turns, in order; of one that hangs what came."""
        self.contexts: list[str] = []
        """What each of them was asked with."""
        self.hanging = threading.Event()
        """A turn has come to its half."""

    async def complete(self, request: Request) -> Completion:
        """Say a turn at once."""
        turn, number = self._turn(request)
        if number in self._hangs:
            await self._hang()
        self.drawn[number] = turn.ids_T
        return turn

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Say a turn token by token."""
        turn, number = self._turn(request)
        assert turn.logprobs_T is not None
        half = len(turn.ids_T) // 2 if number in self._hangs else None
        for place in range(len(turn.ids_T)):
            if place == half:
                await self._hang()
            await asyncio.sleep(0)
            self.drawn[number] = turn.ids_T[: place + 1]
            yield Delta(turn.ids_T[place : place + 1], turn.logprobs_T[place : place + 1])
        yield Delta(turn.ids_T[:0], turn.logprobs_T[:0], turn)

    def _turn(self, request: Request) -> tuple[Completion, int]:
        number, context = len(self.drawn), self._chat.decode(request.ids_T)
        ids_T = self._chat.write(self._say(context, number), list(self._tools) or None)
        sampling = request.sampling
        ids_T = ids_T[: min(stop_end(self._chat, ids_T, sampling.stop) or len(ids_T), sampling.max_tokens)]
        self.drawn.append(ids_T[:0])
        self.contexts.append(context)
        finish = finish_reason(self._chat, ids_T, sampling.stop)
        logprobs_T = (-0.25 - np.arange(len(ids_T)) / 128).astype(np.float32)
        turn = Completion(ids_T, logprobs_T, finish, logprobs="raw", engine=self.name, sampling=sampling)
        return turn, number

    async def _hang(self) -> None:
        self.hanging.set()
        await asyncio.Event().wait()


def prove(run: Path, chat: ChatFormat, policy: Scripted, episodes: Sequence[Episode], *, least: int = 10) -> list[Turn]:
    """Prove that a trace holds what was drawn and nothing else; returns the turns of the first episode.

    Args:
        run: The trace.
        chat: Its format.
        policy: Who drew the turns.
        episodes: All sessions of the run.
        least: Turns that there must be.
    """
    proof = verify(run, chat)
    assert not proof.breaches
    assert (proof.running, proof.redacted) == (0, 0)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert proof.turns == len(turns) >= least
    for accounting in proof.accounting:
        assert accounting.complete
        assert accounting.sampled == sum(len(turn.completion.ids_T) for turn in turns)
    assert all(turn.used == (turn.completion.finish_reason != "abort") for turn in turns)
    drawn = sorted(ids_T.tobytes() for ids_T in policy.drawn)
    assert sorted(turn.completion.ids_T.tobytes() for turn in turns) == drawn
    for episode in episodes:
        _prove_rows(episode)
    return list(episodes[0].turns)


def _prove_rows(episode: Episode) -> None:
    """Each turn is trained once, in its context, unless there is a reason why not."""
    trained: dict[int, int] = {}
    steps = {turn.index: turn for turn in episode.turns if mask_reason(turn, "rl") is None}
    for row in rows(episode):
        for index in sorted({*row.turn_T[row.mask_T].tolist()}):
            turn, own_T = steps[index], row.mask_T & (row.turn_T == index)
            start = int(np.argmax(own_T))
            assert np.array_equal(row.ids_T[own_T], turn.completion.ids_T)
            assert np.array_equal(row.ids_T[:start], turn.context.ids)
            assert turn.completion.logprobs_T is not None
            assert np.array_equal(row.logprobs_T[own_T], turn.completion.logprobs_T)
            trained[index] = trained.get(index, 0) + 1
    assert trained == dict.fromkeys(steps, 1)


def kinds(turns: Sequence[Turn]) -> list[tuple[str, int | None]]:
    """Return each turn's edge and where it comes from."""
    return [(turn.edge.kind, turn.edge.source) for turn in turns]


def aborted(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns that a client broke off, after a look at each."""
    found = [turn for turn in turns if turn.completion.finish_reason == "abort"]
    for turn in found:
        assert not turn.used
        assert turn.failure is not None
        assert turn.failure.boundary == "client"
        assert 0 <= turn.facts["told_tokens"] <= len(turn.completion.ids_T)
    return found
