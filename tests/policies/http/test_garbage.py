"""Turns leave nothing behind that only the collector of cycles could find."""

import asyncio
import contextlib
import gc
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra engines is not installed")

from agentgym_tok import ChatFormat, Request, Sampling
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.http.vllm import VLLMPolicy

BUILTIN = ChatFormat.builtin()
IDS_T = BUILTIN.open([{"role": "user", "content": "Hello."}]).ids


async def _turn(policy: VLLMPolicy, seed: int, *, stream: bool, early: bool) -> None:
    request = Request(IDS_T, Sampling(max_tokens=64), seed=seed)
    pieces: Any = policy.stream(request)
    with contextlib.suppress(PolicyError):
        if not stream:
            await policy.complete(request)
            return
        async for _ in pieces:
            if early:
                break
    await pieces.aclose()


@pytest.mark.parametrize("inside", [True, False], ids=["in its loop", "from another loop"])
@pytest.mark.parametrize(
    ("stream", "fault"), [(True, None), (False, None), (True, "500"), (False, "500"), (True, "hang")]
)
def test_turns_leave_nothing_of_ours_to_the_collector(
    fake: Any, at_once: None, fault: str | None, stream: bool, inside: bool
) -> None:
    def ask(policy: VLLMPolicy, first: int) -> None:
        for seed in range(first, first + 3):
            turn = _turn(policy, seed, stream=stream, early=fault == "hang")
            policy.run_in_loop(turn) if inside else asyncio.run(turn)

    with VLLMPolicy(fake.url, BUILTIN) as policy:
        fake.fault = lambda seed, attempt: fault
        ask(policy, 10)
        gc.collect()
        # What others made before stays alive meanwhile, whoever lets go of it: only what the turns make is found.
        others = gc.get_objects()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            ask(policy, 20)
            gc.collect()
            ours = [thing for thing in gc.garbage if type(thing).__module__.startswith("agentgym_tok")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            del others
        assert ours == []
