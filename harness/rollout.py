"""One episode: ask the policy, give its turn to the world or to tools, and log every attempt."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_tok.chat import Refusal
from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ChatError, ConfigError, TraceError
from agentgym_tok.harness.asker import Answer, Asker
from agentgym_tok.harness.budget import Spending
from agentgym_tok.harness.compaction import Compaction
from agentgym_tok.harness.conversation import Conversation
from agentgym_tok.harness.episode_log import EpisodeLog
from agentgym_tok.harness.family import Family
from agentgym_tok.harness.observers import Observer
from agentgym_tok.harness.retries import Retries
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.harness.subagents import Subagents
from agentgym_tok.harness.tools import Toolbox
from agentgym_tok.harness.world import World
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Boundary, EdgeKind, Episode, EpisodeHead, Failure, Status, TraceStore, Turn
from agentgym_tok.types import AssistantMessage, Completion, Message, Request, Sampling

__all__ = ["Rollout", "Setup"]

_NO_RETRIES = Retries()


@dataclass(frozen=True, slots=True)
class Setup:
    """Hold what all episodes of a run have in common.

    Args:
        asker: The policy.
        sampling: How turns are drawn.
        hints: Give experts what they may know.
        store: Where turns go.
        compaction: Rewrites conversations.
        retries: What is tried again.
        tools: Tools beside the world.
        subagents: Lets the policy open children.
        turn_timeout_s: Longest wait for one answer of the policy.
        observers: Watch.
    """

    asker: Asker
    sampling: Sampling
    hints: bool = False
    store: TraceStore | None = None
    compaction: Compaction | None = None
    retries: Retries = _NO_RETRIES
    tools: Toolbox | None = None
    subagents: Subagents | None = None
    turn_timeout_s: float | None = None
    observers: Sequence[Observer] = ()


class Rollout:
    """Drive one environment by completions; a failure ends the episode as a record.

    Args:
        env: A token environment, wrapped or not, just reset.
        info: What its `reset` returned.
        head: What the episode is.
        setup: What all episodes have in common.
        spending: What it may spend.
        depth: How many callers stand above it.
    """

    def __init__(
        self,
        env: TokenGym,
        info: Mapping[str, Any],
        head: EpisodeHead,
        setup: Setup,
        spending: Spending,
        *,
        depth: int = 0,
    ) -> None:
        retries = setup.retries
        self._setup = setup
        self._world = World(env, head, keep=bool(retries.invalid_action or retries.world))
        tokens = self._world.tokens
        self._depth = depth
        alone = not tokens.prompting.tools
        self._family = Family(setup.tools, setup.subagents, depth, alone=alone, spawn=self._spawn)
        if self._family.schemas or setup.compaction is not None:
            _require_growing(tokens)
        if self._family.schemas:
            tools = [*tokens.prompting.tools, *self._family.schemas]
            tokens.adopt(tokens.chat.open(tokens.conversation, tools), tokens.conversation)
        self._conversation = Conversation(tokens.chat, tokens.context, tokens.conversation)
        opening: EdgeKind = "fresh_prompt" if head.parent is None else "subagent_call"
        recorder = Recorder(tokens, head, dict(info), setup.store, opening=opening)
        self.log = EpisodeLog(recorder, spending, setup.observers)
        self._request: Request | None = None
        self._context = tokens.context
        self._answer: Answer | None = None
        self._left: dict[str, int] = {}
        self._status: Status = "running"
        self._failure: Failure | None = None
        self._fatal: Exception | None = None

    @property
    def env(self) -> TokenGym:
        """The environment."""
        return self._world.env

    @property
    def tokens(self) -> TokenEnv:
        """The token environment under it."""
        return self._world.tokens

    @property
    def setup(self) -> Setup:
        """What all episodes have in common."""
        return self._setup

    @property
    def running(self) -> bool:
        """The episode awaits another turn."""
        return self._status == "running"

    async def play(self) -> Episode:
        """Play to the end, and return the episode.

        Raises:
            TraceError: The store cannot take a turn.
            BaseException: What ends the run; the episode is then abandoned.
        """
        try:
            while self.running:
                await self._turn()
        finally:
            if self.running:
                self._abandon()
        return self.episode()

    def episode(self) -> Episode:
        """Return the episode as far as it went."""
        recorder = self.log.recorder
        children = self._family.children
        return Episode(recorder.head, tuple(recorder.turns), self._status, recorder.success, self._failure, children)

    # ---- one turn

    async def _turn(self) -> None:
        compaction, spending = self._setup.compaction, self.log.spending
        if compaction is not None and self._conversation.fresh and not spending.exhausted():
            await self._compact(compaction, forced=False)
            if not self.running:
                return None
        # A limit that is reached here, a subagent or a summary reached: other turns say it themselves.
        spent = spending.exhausted()
        if spent or len(self.tokens.context) > self.tokens.max_context:
            return self._close(f"budget_{spent}" if spent else "context")
        self._left = {"policy": self._setup.retries.policy, "invalid": self._setup.retries.invalid_action}
        self._left["world"] = self._setup.retries.world
        self._left["tool"] = self._setup.retries.tool
        while not await self._attempt(self.tokens.context):
            pass
        return None

    def _close(self, truncation: str) -> None:
        """End the episode where a limit leaves no room for another turn, which the policy is not asked for."""
        context = self.tokens.context
        self._request = self.log.request(context, self._setup.sampling, None)
        self._write(context, replace(self.log.silence(self._request), finish_reason="truncated"), truncation=truncation)
        self._end("done")

    async def _attempt(self, context: Context) -> bool:
        """Make one attempt at a turn; tells whether the turn is done with."""
        answer = await self._ask(context)
        if answer is None:
            return True
        if isinstance(answer, Exception):
            return self._missed(context, answer)
        if answer.finish_reason == "truncated" and not len(answer.ids_T):
            return await self._overflowed(context, answer)
        try:
            turn = context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T))
        except AgentGymTokError as error:
            # Ids that no vocabulary has cannot be stored either; the error names them.
            return self._give_up(context, "policy", error)
        said = self.tokens.chat.parse(answer.ids_T, context.root.tools) if self._needs_words else None
        if said is not None and self._family.called(said):
            await self._use_tools(context, answer, turn, said)
            return True
        return await self._step(context, answer, turn, said)

    @property
    def _needs_words(self) -> bool:
        return bool(self._family.schemas) or self._setup.compaction is not None or self._setup.retries.feedback

    async def _ask(self, context: Context) -> Answer | None:
        """Return what the policy answers; None where the world's expert failed, which ends the episode."""
        sampling, log = self._setup.sampling, self.log
        if self.tokens.stop and not sampling.stop:
            sampling = sampling.model_copy(update={"stop": self.tokens.stop})
        self._request = log.request(context, sampling, self._setup.turn_timeout_s)
        if self._setup.hints:
            try:
                self._request = replace(self._request, info=self.tokens.hints())
            except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
                self._give_up(context, "world", error)
                return None
        return await self._answered(context)

    async def _answered(self, context: Context) -> Answer:
        """Ask for the request at hand, and count what it took."""
        request = self._asked
        self._context, self._answer = context, None
        answer = self._answer = await self._setup.asker.ask(request)
        self.log.spending.add(len(context), answer if isinstance(answer, Completion) else self.log.silence(request))
        return answer

    def _missed(self, context: Context, error: Exception) -> bool:
        """Try again where the engine failed, or end the episode."""
        spent = self.log.spending.exhausted()
        if spent is not None:
            self._write(context, self.log.silence(self._asked), truncation=f"budget_{spent}")
            self._end("done")
            return True
        if getattr(error, "transient", False) and self._retry("policy"):
            failure = Failure("policy", type(error).__name__, str(error))
            self._write(context, self.log.silence(self._asked), failure=failure, used=False)
            return False
        return self._give_up(context, "policy", error)

    async def _overflowed(self, context: Context, answer: Completion) -> bool:
        """Make room by a compaction, or end the episode where there is no room for a turn."""
        compaction = self._setup.compaction
        if compaction is not None and self._conversation.fresh:
            self._write(context, answer, used=False)
            self.log.next_turn()
            if not await self._compact(compaction, forced=True) and self.running:
                self._close("context")
            return True
        self._write(context, answer, truncation="context_overflow")
        self._end("done")
        return True

    async def _step(self, context: Context, answer: Completion, turn: Context, said: AssistantMessage | None) -> bool:
        try:
            step = await self._world.step(turn)
        except TraceError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record, never a crash of the batch
            return await self._broken(context, answer, error)
        invalid = _complaint(step)
        if invalid is not None and self._retry("invalid"):
            return await self._refused(context, answer, turn, said, step, invalid)
        spent = None if step.over else self.log.spending.exhausted()
        self._write(context, answer, step=step, truncation=spent and f"budget_{spent}")
        if step.over or spent:
            self._end("done")
        elif step.info["edge"] == "continuation" and said is not None:
            messages, after = step.info["messages"], self.tokens.context
            self._conversation = self._conversation.followed(turn, said.message(), messages, after)
        else:
            self._conversation = Conversation(self.tokens.chat, self.tokens.context, self.tokens.conversation)
        return True

    async def _broken(self, context: Context, answer: Completion, error: Exception) -> bool:
        """Put the world back and try again, or end the episode."""
        failure = Failure(self._world.boundary(error), type(error).__name__, str(error))
        if failure.boundary == "world" and self._retry("world"):
            with contextlib.suppress(Exception):  # the first failure is the one to log
                await self._world.put_back()
                self.log.recorder.env = self.tokens
                self._write(context, answer, failure=failure, used=False)
                return False
        self._write(context, answer, failure=failure)
        self._end("failed", failure)
        return True

    async def _refused(
        self,
        context: Context,
        answer: Completion,
        turn: Context,
        said: AssistantMessage | None,
        step: StepResult,
        why: str,
    ) -> bool:
        """Put the world back to before an invalid turn, and ask again: for another one, or with a word about it."""
        try:
            await self._world.put_back()
        except Exception as error:  # noqa: BLE001  # a world that cannot be put back has moved
            return await self._broken(context, answer, error)
        self.log.recorder.env = self.tokens
        if not self._setup.retries.feedback or said is None:
            self._write(context, answer, step=step, used=False, put_back=True, refused=why)
            return False
        messages = [Message("user", f"{why} Nothing happened. Give another answer.")]
        spent = self.log.spending.exhausted()
        truncation = spent and f"budget_{spent}"
        facts = {"aside": "feedback", "refused": why}
        self._write(context, answer, step=step, put_back=True, truncation=truncation, **facts)
        if spent:
            self._end("done")
        else:
            self._follow(turn, said, messages, "continuation")
        return True

    # ---- tools and subagents

    async def _use_tools(self, context: Context, answer: Completion, turn: Context, said: AssistantMessage) -> None:
        """Log the turn, run what it calls, and go on with what came back."""
        spent = self.log.spending.exhausted()
        ends = self._family.reports(said)
        if spent or ends is not None:
            self._write(context, answer, truncation=spent and f"budget_{spent}", aside="report", said=ends or "")
            self._end("done")
            return
        written = self._write(context, answer, aside="tools")
        results = await self._family.run(said, self, written.index, lambda: self._retry("tool"))
        self.log.remember(tools=[result.facts for result in results])
        kind: EdgeKind = "subagent_return" if any(result.delegated for result in results) else "continuation"
        self._follow(turn, said, [result.message for result in results], kind)

    def _follow(self, turn: Context, said: AssistantMessage, messages: Sequence[Message], kind: EdgeKind) -> None:
        """Put messages behind a turn that the world did not get, and go on from there."""
        tokens, conversation = self.tokens, self._conversation
        bridged = tokens.chat.bridge(turn, messages)
        if isinstance(bridged, Refusal):
            whole = (*conversation.messages, said.message(), *messages)
            try:
                context = tokens.chat.open(whole, turn.root.tools)
            except ChatError as error:
                return self._end("failed", Failure("harness", type(error).__name__, str(error)))
            self._conversation = Conversation(tokens.chat, context, whole)
            self.log.declare("rerender", bridged.reason, whole)
        else:
            self._conversation = conversation.followed(turn, said.message(), messages, bridged)
            self.log.declare(kind, "", messages)
        return tokens.adopt(self._conversation.context, self._conversation.messages)

    # ---- compaction

    async def _compact(self, compaction: Compaction, *, forced: bool) -> bool:
        """Rewrite the conversation where that is due, or forced; tells whether it was done."""
        conversation = self._conversation
        try:
            if not forced and not compaction.due(conversation, self.tokens.max_context):
                return False
            rewrite = await compaction.compact(conversation, self._draw)
        except Exception as error:
            if error is self._fatal:
                raise
            self._break_off(error)
            return False
        self.log.next_turn()  # whatever was drawn for it is no attempt at what comes now
        if rewrite is None:
            # As it stands it cannot be rewritten: not before another turn is it asked again.
            self._conversation = replace(conversation, rewritten=len(conversation.exchanges))
            return False
        self._conversation = replace(rewrite.conversation, rewritten=len(rewrite.conversation.exchanges))
        self.log.declare(rewrite.kind, rewrite.reason, self._conversation.messages)
        self.tokens.adopt(self._conversation.context, self._conversation.messages)
        return True

    async def _draw(
        self,
        context: Context,
        messages: Sequence[Message],
        judge: Callable[[Completion], str | None],
        *,
        attempts: int,
        max_tokens: int,
    ) -> Completion | None:
        sampling = self._setup.sampling.model_copy(update={"max_tokens": max_tokens, "stop": ()})
        for _ in range(attempts):
            if self.log.spending.exhausted():
                break
            self.log.declare("continuation", "a summary is asked for", messages)
            self._request = self.log.request(context, sampling, self._setup.turn_timeout_s)
            answer = await self._answered(context)
            if isinstance(answer, Completion):
                answer = self._answer = _storable(context, answer)
            if isinstance(answer, Exception):
                failure = Failure("policy", type(answer).__name__, str(answer))
                self._write(context, self.log.silence(self._asked), failure=failure, used=False, aside="summary")
                continue
            problem = "there was no room" if not len(answer.ids_T) else judge(answer)
            if problem is None:
                self._write(context, answer, aside="summary")
                return answer
            self._write(context, answer, used=False, aside="summary", refused=problem)
        return None

    # ---- the end

    @property
    def _asked(self) -> Request:
        assert self._request is not None
        return self._request

    def _write(self, context: Context, answer: Completion, **outcome: Any) -> Turn:
        try:
            written = self.log.write(context, self._asked, answer, **outcome)
        except Exception as error:
            self._fatal = error  # of the store, or of an observer
            raise
        self._request = self._answer = None
        return written

    def _retry(self, kind: str) -> bool:
        """Take a retry where there is one left, for this turn and in the budget."""
        if not self._left[kind] or self.log.spending.exhausted() or not self.log.spending.retry():
            return False
        self._left[kind] -= 1
        return True

    def _give_up(self, context: Context, boundary: Boundary, error: Exception) -> bool:
        """End the episode because there is no turn."""
        failure = Failure(boundary, type(error).__name__, str(error))
        self._write(context, self.log.silence(self._asked), failure=failure)
        self._end("failed", failure)
        return True

    def _end(self, status: Status, failure: Failure | None = None) -> None:
        self.log.finish(status, failure)
        self._status, self._failure = status, failure

    def _break_off(self, error: Exception) -> None:
        """End the episode because a part of the harness failed."""
        self._keep_drawn()
        self._end("failed", Failure("harness", type(error).__name__, str(error)))

    def _abandon(self) -> None:
        """End the episode because the run ends.

        Errors of the store are passed over: what ended the run is the one to see.
        """
        with contextlib.suppress(AgentGymTokError):
            self._keep_drawn()
        with contextlib.suppress(TraceError):
            self._end("abandoned")

    def _keep_drawn(self) -> None:
        """Write a turn that was drawn and that nobody has taken, as unused."""
        answer = self._answer
        if answer is None and self._request is not None:
            answer = self._setup.asker.drawn(self._request)
        if isinstance(answer, Completion) and self._request is not None:
            self._write(self._context, answer, used=False)

    def _spawn(self, env: TokenEnv, info: Mapping[str, Any], head: EpisodeHead, subagents: Subagents) -> "Rollout":
        setup = replace(
            self._setup,
            tools=subagents.tools,
            sampling=subagents.sampling or self._setup.sampling,
            compaction=None,
        )
        return Rollout(env, info, head, setup, Spending(subagents.budget, self.log.spending), depth=self._depth + 1)


def _storable(context: Context, answer: Completion) -> Answer:
    """Return the answer, or the error where it holds ids that no vocabulary has."""
    try:
        context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T))
    except AgentGymTokError as error:
        return error
    return answer


def _complaint(step: StepResult) -> str | None:
    """Say what is wrong with a turn that the world refuses."""
    if step.info["format_ok"] is not None and not step.info["format_ok"]:
        return "Your answer does not have the form that was asked for."
    if step.info["valid_action"] is not None and not step.info["valid_action"]:
        return f"{step.info['action_text']!r} is not possible now."
    return None


def _require_growing(tokens: TokenEnv) -> None:
    if tokens.prompting.fresh:
        raise ConfigError(
            "tools, subagents and compaction need one growing conversation",
            where="Harness",
            got=f"prompting {tokens.prompting.name!r}, which opens a fresh prompt for each step",
            fix='use prompting="transcript" or "react"',
        )
