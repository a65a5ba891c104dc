"""Streams: pieces that are lost, doubled or another turn's are found."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from toy import Toy, patient

from agentgym_tok import Request
from agentgym_tok.doctor.streaming import check_streaming
from agentgym_tok.types import Delta


class Loses(Toy):
    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for place, piece in _numbered(super().stream(request)):
            if place != 3:
                yield piece


class Doubles(Toy):
    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for place, piece in _numbered(super().stream(request)):
            yield piece
            if place == 3:
                yield piece


class Endless(Toy):
    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for piece in super().stream(request):
            if piece.completion is None:
                yield piece


class OtherSeed(Toy):
    deterministic = False

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for piece in super().stream(replace(request, seed=request.seed + 1)):
            yield piece


async def _numbered(pieces: AsyncIterator[Delta]) -> AsyncIterator[tuple[int, Delta]]:
    place = 0
    async for piece in pieces:
        yield place, piece
        place += 1


def test_a_stream_that_equals_the_whole_turn_passes() -> None:
    found = check_streaming(patient(Toy()))
    assert (found.status, "39 pieces" in found.found) == ("ok", True)


@pytest.mark.parametrize(
    ("policy", "words", "advice"),
    [
        (Loses(), "11 streamed ids, and the turn of 12 is another from token", "cuts the stream"),
        (Doubles(), "13 streamed ids, and the turn of 12 is another from token", "cuts the stream"),
        (Endless(), "does not end in its completion", "cuts the stream"),
        (OtherSeed(), "3 of 3 turns part", "other parameters"),
    ],
)
def test_each_fault_of_a_stream_is_found(policy: Toy, words: str, advice: str) -> None:
    found = check_streaming(patient(policy))
    assert (found.status, words in found.found, advice in found.advice) == ("failed", True, True)


def test_a_stream_can_be_examined_inside_a_running_loop() -> None:
    import asyncio

    async def inside() -> str:
        return check_streaming(patient(Toy())).status

    assert asyncio.run(inside()) == "ok"
