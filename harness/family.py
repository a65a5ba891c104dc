"""What an episode can call beside its world: tools, and children that work on a part of the task."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from agentgym_tok.envs.recording import new_episode_id
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import TraceError
from agentgym_tok.harness.subagents import DELEGATE, REPORT, Subagents, child_env, delegate_schema, report_schema
from agentgym_tok.harness.tools import Toolbox, ToolResult
from agentgym_tok.seeds import derive_seed
from agentgym_tok.trace import Episode, EpisodeHead, Failure
from agentgym_tok.types import AssistantMessage, Message, ToolCall

if TYPE_CHECKING:
    from agentgym_tok.harness.rollout import Rollout

__all__ = ["Called", "Family", "Spawn"]

Spawn: TypeAlias = "Callable[[TokenEnv, Mapping[str, Any], EpisodeHead, Subagents], Rollout]"
"""Makes the rollout of a child, of its environment and what its `reset` returned."""


@dataclass(frozen=True, slots=True)
class Called:
    """Hold what came back from one call.

    Args:
        message: For the policy.
        facts: For the trace: name, attempts, and the failure if there was one.
        delegated: A child answered.
    """

    message: Message
    facts: Mapping[str, Any]
    delegated: bool = False


class Family:
    """Answer the calls of one episode.

    Args:
        tools: Tools beside the world; fresh ones are taken.
        subagents: Lets it open children.
        depth: How many callers stand above the episode.
        alone: The world itself takes no calls, so that every call is for here.
        spawn: Makes the rollout of a child.
    """

    def __init__(
        self, tools: Toolbox | None, subagents: Subagents | None, depth: int, *, alone: bool, spawn: Spawn
    ) -> None:
        self._spawn = spawn
        self._tools = None if tools is None else tools.fresh()
        self._subagents = subagents
        self._depth = depth
        self._alone = alone
        self._opened = 0
        self._rollouts: list[tuple[int, int, Rollout]] = []
        delegates = subagents is not None and depth < subagents.max_depth
        reports = subagents is not None and depth > 0 and subagents.world == "clone"
        self._own = frozenset([DELEGATE] * delegates + [REPORT] * reports)
        self.schemas: tuple[Mapping[str, Any], ...] = (
            *(() if self._tools is None else self._tools.schemas),
            *([delegate_schema()] if delegates else []),
            *([report_schema()] if reports else []),
        )

    @property
    def children(self) -> tuple[Episode, ...]:
        """The children so far, in the order of their calls."""
        return tuple(rollout.episode() for _, _, rollout in sorted(self._rollouts, key=lambda entry: entry[:2]))

    def called(self, said: AssistantMessage) -> bool:
        """Tell whether a turn calls what is answered here."""
        if not self.schemas:
            return False
        return bool(said.tool_calls) and (self._alone or any(self._mine(call) for call in said.tool_calls))

    def reports(self, said: AssistantMessage) -> str | None:
        """Return the answer of a child that ends its work; None where the turn does not."""
        calls = [call for call in said.tool_calls if call.name == REPORT and REPORT in self._own and call.arguments]
        return str((calls[0].arguments or {}).get("answer", "")) if calls else None

    async def run(
        self, said: AssistantMessage, caller: "Rollout", turn: int, retry: Callable[[], bool]
    ) -> list[Called]:
        """Answer all calls of a turn at the same time.

        Args:
            said: The turn.
            caller: The calling episode.
            turn: Index of the turn.
            retry: Takes a retry for a tool that failed; tells whether there was one.

        Returns:
            What came back, in the order of the calls.
        """
        calls = said.tool_calls
        delegated = [place for place, call in enumerate(calls) if call.name == DELEGATE and self._mine(call)]
        others = [place for place in range(len(calls)) if place not in delegated]
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._use([calls[place] for place in others], retry))
                errands = [group.create_task(self._delegate(calls[place], caller, turn, place)) for place in delegated]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # of the store, or of an observer: as if there were no children
        found = {
            **dict(zip(others, answers.result(), strict=True)),
            **{place: errand.result() for place, errand in zip(delegated, errands, strict=True)},
        }
        return [found[place] for place in range(len(calls))]

    def _mine(self, call: ToolCall) -> bool:
        return call.name in self._own or (self._tools is not None and call.name in self._tools)

    async def _use(self, calls: Sequence[ToolCall], retry: Callable[[], bool]) -> list[Called]:
        if not self._alone:
            ours = [call for call in calls if self._mine(call)]
            known = iter(await self._use_box(ours, retry))
            return [next(known) if self._mine(call) else _apart(call) for call in calls]
        return await self._use_box(calls, retry)

    async def _use_box(self, calls: Sequence[ToolCall], retry: Callable[[], bool]) -> list[Called]:
        box = self._tools or Toolbox()
        results = await box.run_all(calls)
        attempts = [1] * len(calls)
        while again := [place for place, result in enumerate(results) if _may_pass(result) and retry()]:
            for place, result in zip(again, await box.run_all([calls[place] for place in again]), strict=True):
                results[place] = result
                attempts[place] += 1
        return [
            Called(result.message, _facts(result.call, result.failure, attempts[place]))
            for place, result in enumerate(results)
        ]

    async def _delegate(self, call: ToolCall, caller: "Rollout", turn: int, place: int) -> Called:
        """Let a child work on a task, and return its answer or why there is none."""
        subagents, task = self._subagents, (call.arguments or {}).get("task")
        assert subagents is not None  # the tool was offered
        if call.status != "ok" or not isinstance(task, str) or not task.strip():
            return _refused(call, "invalid_arguments", 'delegate needs its task in words: {"task": "..."}.')
        if self._opened >= subagents.max_children:
            return _refused(call, "too_many_children", f"no more than {subagents.max_children} helpers can be asked.")
        self._opened += 1
        head, own = caller.dialogue.recorder.head, new_episode_id()
        seed = derive_seed(head.seed, head.task, head.replica, "child", turn, place)
        born = replace(head, id=own, seed=seed, parent=head.id, parent_turn=turn, role="subagent", created=time.time())
        try:
            env = child_env(subagents, caller.tokens, task)
            _, info = env.reset(seed=0)
            rollout = self._spawn(env, info, born, subagents)
        except TraceError:
            raise
        except Exception as error:  # noqa: BLE001  # a task that does not fit, or a world that cannot be copied
            return _refused(call, type(error).__name__, f"the helper could not begin: {error}"[:400])
        self._rollouts.append((turn, place, rollout))
        episode = await rollout.play()
        answer, failure = _answer_of(episode)
        text = answer if len(answer) <= subagents.max_answer else f"{answer[: subagents.max_answer]} [...]"
        message = Message("tool", text, tool_call_id=call.id or None, name=call.name)
        return Called(message, {**_facts(call, failure, 1), "child": own}, delegated=True)


def _answer_of(episode: Episode) -> tuple[str, Failure | None]:
    """Return what a child answered, in words that its caller can read whatever became of it."""
    if episode.failure is not None:
        return f"Error: the helper failed: {episode.failure.message}"[:400], episode.failure
    last = episode.steps[-1] if episode.steps else None
    if last is None or not last.used or (last.truncated and last.facts.get("aside") != "report"):
        limit = "a limit" if last is None else last.truncation or "a limit"
        return f"Error: the helper did not finish: {limit}.", Failure("policy", "unfinished", limit)
    return str(last.facts.get("said", last.action_text)) or "(no answer)", None


def _apart(call: ToolCall) -> Called:
    return _refused(call, "not_alone", "this call was not executed: make it in a turn of its own.")


def _refused(call: ToolCall, kind: str, words: str) -> Called:
    message = Message("tool", f"Error: {words}", tool_call_id=call.id or None, name=call.name or None)
    return Called(message, _facts(call, Failure("tool", kind, words), 1))


def _may_pass(result: ToolResult) -> bool:
    """Tell whether the same call may fare better another time."""
    return result.failure is not None and not result.mistaken


def _facts(call: ToolCall, failure: Failure | None, attempts: int) -> dict[str, Any]:
    failed = {} if failure is None else {"failure": failure.kind, "boundary": failure.boundary}
    return {"name": call.name[:80], "attempts": attempts, **failed}
