"""A scripted policy that says anything, and what must hold of every run that it plays."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.policies import BasePolicy
from agentgym_tok.tokens import as_ids
from agentgym_tok.trace import Episode, Turn, account, rows, verify
from agentgym_tok.trace.rows import family
from agentgym_tok.types import Message, ToolCall

CHAT = ChatFormat.builtin()


def make_env(**options: Any) -> ALFWorldEnv:
    return ALFWorldEnv(CHAT, **{"split": "valid_seen", "max_steps": 6, **options})


def turn_of(ids: Sequence[int], request: Request) -> Completion:
    """Say ids as a sampled turn, with log-probabilities of the request's seed."""
    logprobs_T = -np.random.default_rng(request.seed + 1).random(len(ids)).astype(np.float32)
    return Completion(
        as_ids(ids),
        logprobs_T,
        finish_reason="stop" if len(ids) and ids[-1] in CHAT.stop_ids else "length",
        logprobs="raw",
        engine="scripted",
        sampling=request.sampling,
    )


def calls(*made: tuple[str, dict[str, Any]]) -> list[int]:
    """Return a turn that makes calls."""
    return CHAT.write(Message("assistant", "", tool_calls=tuple(ToolCall(*call) for call in made))).tolist()


def says(text: str) -> list[int]:
    return CHAT.encode_turn(text).tolist()


def acts(command: str) -> list[int]:
    return says(f"<action>{command}</action>")


class Script(BasePolicy):
    """Answer each request by a function of it, and remember what was asked."""

    name = "scripted"
    deterministic = True

    def __init__(self, say: Callable[[Request], Sequence[int] | Completion]) -> None:
        self.asked: list[Request] = []
        self._say = say

    def answer(self, request: Request) -> Completion:
        self.asked.append(request)
        said = self._say(request)
        return said if isinstance(said, Completion) else turn_of(said, request)


class Lines(Script):
    """Say one thing after the other."""

    def __init__(self, *lines: Sequence[int] | Completion | Exception) -> None:
        left = iter(lines)

        def say(request: Request) -> Sequence[int] | Completion:
            line = next(left, None)
            if isinstance(line, Exception):
                raise line
            return acts("look") if line is None else line

        super().__init__(say)


def anything(request: Request) -> Sequence[int] | Completion:
    """Say ids, commands, thoughts, calls well-formed and not, and sometimes fail: all drawn from the request's seed."""
    draw = np.random.default_rng(request.seed)
    kind = draw.random()
    if kind < 0.03:
        raise RuntimeError("the engine is down")
    if kind < 0.05:
        return Completion(as_ids([]), finish_reason="truncated", sampling=request.sampling)
    if kind < 0.2:
        made = [("delegate", {"task": f"part {place}"}) for place in range(int(draw.integers(1, 4)))]
        return calls(*made)
    if kind < 0.35:
        return calls(("add", {"a": 1, "b": int(draw.integers(9))}), ("add", {"a": "x"}), ("no_such_tool", {}))
    if kind < 0.4:
        return calls(("report", {"answer": "here"}))
    if kind < 0.45:
        return says('<tool_call>\n{"name": "add", "arguments": {"a": 1')
    if kind < 0.75:
        return says(f"<think>let me see {draw.integers(99)}</think><action>look</action>")
    ids = draw.integers(CHAT.vocab_size, size=draw.integers(1, 12)).tolist()
    return [*ids, CHAT.stop_ids[0]] if draw.random() < 0.5 else ids


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    if b == 7:
        raise ValueError("not seven")
    return a + b


def everyone(episodes: Sequence[Episode]) -> list[Episode]:
    return [member for episode in episodes for member in family(episode)]


def turns_of(episodes: Sequence[Episode]) -> list[Turn]:
    return [turn for member in everyone(episodes) for turn in member.turns]


def unasked(turn: Turn) -> bool:
    """Tell whether the policy was not asked for a turn, because of a limit."""
    limit = turn.truncation or ""
    return turn.completion.finish_reason == "truncated" and (limit == "context" or limit.startswith("budget_"))


def check_laws(run: Path, episodes: Sequence[Episode], asked: Sequence[Request]) -> None:
    """Assert what holds of every run: verified, logged as sent, accounted for, replayable."""
    found = verify(run, CHAT)
    assert found.ok, found.breaches
    assert account(list(episodes)).complete
    logged = sorted(turn.context.ids.tobytes() for turn in turns_of(episodes) if not unasked(turn))
    assert logged == sorted(request.ids_T.tobytes() for request in asked)
    for episode in episodes:
        trained = sum(int(row.mask_T.sum()) for row in rows(episode))
        assert trained == account(episode).trained
        assert abs(sum(row.weight for row in rows(episode)) - (trained > 0)) < 1e-9
        replay(episode)


def world_turns(episode: Episode) -> Iterator[Turn]:
    """Yield the turns that the world got, in their order."""
    for turn in episode.turns:
        silent = turn.facts.get("aside") or turn.failure is not None or not len(turn.completion.ids_T)
        if turn.used and not silent:
            yield turn


def replay(episode: Episode) -> None:
    """Assert that the world says again what the log says."""
    env = make_env()
    seen = env.engine.reset(episode.head.task)
    for turn in world_turns(episode):
        assert turn.facts["anchor"] == seen.text
        seen = env.engine.step(turn.action_text)
        assert (turn.reward, turn.valid_action) == (seen.reward, seen.valid)
