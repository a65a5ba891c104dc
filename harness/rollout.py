"""One episode: ask the policy, give its turn to the world or to tools, and log every attempt."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_tok.chat import Refusal
from agentgym_tok.envs.recording import Recorder, StepResult
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ChatError, ConfigError, TraceError
from agentgym_tok.harness.budget import Spending
from agentgym_tok.harness.compaction import Compaction
from agentgym_tok.harness.conversation import Conversation
from agentgym_tok.harness.dialogue import Dialogue
from agentgym_tok.harness.family import Family
from agentgym_tok.harness.setup import Setup
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.harness.subagents import Subagents
from agentgym_tok.harness.world import World
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Boundary, EdgeKind, Episode, EpisodeHead, Failure, Status
from agentgym_tok.types import AssistantMessage, Completion, Message

__all__ = ["Rollout"]

_LOG = logging.getLogger(__name__)


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
        self.dialogue = Dialogue(recorder, setup, spending)
        self._left: dict[str, int] = {}
        self._status: Status = "running"
        self._failure: Failure | None = None

    @property
    def env(self) -> TokenGym:
        """The environment."""
        return self._world.env

    @property
    def tokens(self) -> TokenEnv:
        """The token environment under it."""
        return self._world.tokens

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
        recorder = self.dialogue.recorder
        children = self._family.children
        return Episode(recorder.head, tuple(recorder.turns), self._status, recorder.success, self._failure, children)

    # ---- one turn

    async def _turn(self) -> None:
        compaction, spending = self._setup.compaction, self.dialogue.spending
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
        while not await self._attempt():
            pass
        return None

    def _close(self, truncation: str) -> None:
        """End the episode where a limit leaves no room for another turn, which the policy is not asked for."""
        self.dialogue.prepare(self.tokens.context, self._setup.sampling)
        self.dialogue.write(self.dialogue.silence("truncated"), truncation=truncation)
        self._end("done")

    async def _attempt(self) -> bool:
        """Make one attempt at a turn; tells whether the turn is done with."""
        context = self.tokens.context
        try:
            info = self.tokens.hints() if self._setup.hints else None
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record
            self.dialogue.prepare(context, self._setup.sampling)
            return self._fail(self.dialogue.silence(), _failure("world", error))
        sampling = self._setup.sampling
        if self.tokens.stop and not sampling.stop:
            sampling = sampling.model_copy(update={"stop": self.tokens.stop})
        answer = await self.dialogue.ask(context, sampling, info)
        if isinstance(answer, Exception):
            return self._missed(answer)
        if answer.finish_reason == "truncated" and not len(answer.ids_T):
            return await self._overflowed(answer)
        turn = context.extend(Span(answer.ids_T, answer.origin, answer.logprobs_T))
        said = self.tokens.chat.parse(answer.ids_T, context.root.tools) if self._needs_words else None
        if said is not None and self._family.called(said):
            return await self._use_tools(answer, turn, said)
        return await self._step(answer, turn, said)

    @property
    def _needs_words(self) -> bool:
        return bool(self._family.schemas) or self._setup.compaction is not None or self._setup.retries.feedback

    def _missed(self, error: Exception) -> bool:
        """Try again where the engine failed, or end the episode."""
        dialogue, spent = self.dialogue, self.dialogue.spending.exhausted()
        if spent is not None:
            dialogue.write(dialogue.silence(), truncation=f"budget_{spent}")
            return self._end("done")
        failure = _failure("policy", error)
        if getattr(error, "transient", False) and self._retry("policy"):
            dialogue.write(dialogue.silence(), failure=failure, used=False)
            return False
        return self._fail(dialogue.silence(), failure)

    async def _overflowed(self, answer: Completion) -> bool:
        """Make room by a compaction, or end the episode where there is no room for a turn."""
        compaction = self._setup.compaction
        if compaction is not None and self._conversation.fresh:
            self.dialogue.write(answer, used=False)
            self.dialogue.next_turn()
            if not await self._compact(compaction, forced=True) and self.running:
                self._close("context")
            return True
        self.dialogue.write(answer, truncation="context_overflow")
        return self._end("done")

    async def _step(self, answer: Completion, turn: Context, said: AssistantMessage | None) -> bool:
        try:
            step = await self._world.step(turn)
        except TraceError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a record, never a crash of the batch
            return await self._broken(answer, error)
        invalid = _complaint(step)
        if invalid is not None and self._retry("invalid"):
            return await self._refused(answer, turn, said, step, invalid)
        spent = None if step.over else self.dialogue.spending.exhausted()
        self.dialogue.write(answer, step=step, truncation=spent and f"budget_{spent}")
        if step.over or spent:
            self._end("done")
        elif step.info["edge"] == "continuation" and said is not None:
            messages, after = step.info["messages"], self.tokens.context
            self._conversation = self._conversation.followed(turn, said.message(), messages, after)
        else:
            self._conversation = Conversation(self.tokens.chat, self.tokens.context, self.tokens.conversation)
        return True

    async def _broken(self, answer: Completion, error: Exception) -> bool:
        """Put the world back and try again, or end the episode."""
        failure = _failure(self._world.boundary(error), error)
        if failure.boundary == "world" and self._retry("world"):
            try:
                await self._put_back()
            except Exception:  # noqa: BLE001  # the first failure is the one to log
                _LOG.debug("the world of %s could not be put back", self.dialogue.recorder.head.id, exc_info=True)
            else:
                self.dialogue.write(answer, failure=failure, used=False)
                return False
        return self._fail(answer, failure)

    async def _put_back(self) -> None:
        await self._world.put_back()
        self.dialogue.recorder.env = self.tokens

    def _fail(self, answer: Completion, failure: Failure) -> bool:
        """End the episode with a turn that failed."""
        self.dialogue.write(answer, failure=failure)
        return self._end("failed", failure)

    async def _refused(
        self, answer: Completion, turn: Context, said: AssistantMessage | None, step: StepResult, why: str
    ) -> bool:
        """Put the world back to before an invalid turn, and ask again: for another one, or with a word about it."""
        try:
            await self._put_back()
        except Exception as error:  # noqa: BLE001  # a world that cannot be put back has moved
            return self._fail(answer, _failure("world", error))
        if not self._setup.retries.feedback or said is None:
            self.dialogue.write(answer, step=step, used=False, put_back=True, refused=why)
            return False
        messages = [Message("user", f"{why} Nothing happened. Give another answer.")]
        spent = self.dialogue.spending.exhausted()
        truncation = spent and f"budget_{spent}"
        self.dialogue.write(answer, step=step, put_back=True, truncation=truncation, aside="feedback", refused=why)
        return self._end("done") if spent else self._follow(turn, said, messages, "continuation")

    # ---- tools and subagents

    async def _use_tools(self, answer: Completion, turn: Context, said: AssistantMessage) -> bool:
        """Log the turn, run what it calls, and go on with what came back."""
        spent = self.dialogue.spending.exhausted()
        ends = self._family.reports(said)
        if spent or ends is not None:
            facts: dict[str, Any] = {"aside": "tools"} if ends is None else {"aside": "report", "said": ends}
            self.dialogue.write(answer, truncation=spent and f"budget_{spent}", **facts)
            return self._end("done")
        written = self.dialogue.write(answer, aside="tools")
        results = await self._family.run(said, self, written.index, lambda: self._retry("tool"))
        self.dialogue.remember(tools=[result.facts for result in results])
        kind: EdgeKind = "subagent_return" if any(result.delegated for result in results) else "continuation"
        return self._follow(turn, said, [result.message for result in results], kind)

    def _follow(self, turn: Context, said: AssistantMessage, messages: Sequence[Message], kind: EdgeKind) -> bool:
        """Put messages behind a turn that the world did not get, and go on from there."""
        tokens, conversation = self.tokens, self._conversation
        bridged = tokens.chat.bridge(turn, messages)
        if isinstance(bridged, Refusal):
            whole = (*conversation.messages, said.message(), *messages)
            try:
                context = tokens.chat.open(whole, turn.root.tools)
            except ChatError as error:
                return self._end("failed", _failure("harness", error))
            self._conversation = Conversation(tokens.chat, context, whole)
            self.dialogue.declare("rerender", bridged.reason, whole)
        else:
            self._conversation = conversation.followed(turn, said.message(), messages, bridged)
            self.dialogue.declare(kind, "", messages)
        tokens.adopt(self._conversation.context, self._conversation.messages)
        return True

    # ---- compaction

    async def _compact(self, compaction: Compaction, *, forced: bool) -> bool:
        """Rewrite the conversation where that is due, or forced; tells whether it was done."""
        conversation = self._conversation
        try:
            if not forced and not compaction.due(conversation, self.tokens.max_context):
                return False
            rewrite = await compaction.compact(conversation, self._draw)
        except Exception as error:
            if error is self.dialogue.fatal:
                raise
            self._break_off(error)
            return False
        self.dialogue.next_turn()  # whatever was drawn for it is no attempt at what comes now
        if rewrite is None:
            # As it stands it cannot be rewritten: not before another turn is it asked again.
            self._conversation = replace(conversation, rewritten=len(conversation.exchanges))
            return False
        self._conversation = replace(rewrite.conversation, rewritten=len(rewrite.conversation.exchanges))
        self.dialogue.declare(rewrite.kind, rewrite.reason, self._conversation.messages)
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
            if self.dialogue.spending.exhausted():
                break
            self.dialogue.declare("continuation", "a summary is asked for", messages)
            answer = await self.dialogue.ask(context, sampling)
            if isinstance(answer, Exception):
                failure = _failure("policy", answer)
                self.dialogue.write(self.dialogue.silence(), failure=failure, used=False, aside="summary")
                continue
            problem = "there was no room" if not len(answer.ids_T) else judge(answer)
            if problem is None:
                self.dialogue.write(answer, aside="summary")
                return answer
            self.dialogue.write(answer, used=False, aside="summary", refused=problem)
        return None

    # ---- the end

    def _retry(self, kind: str) -> bool:
        """Take a retry where there is one left, for this turn and in the budget."""
        if not self._left[kind] or self.dialogue.spending.exhausted() or not self.dialogue.spending.retry():
            return False
        self._left[kind] -= 1
        return True

    def _end(self, status: Status, failure: Failure | None = None) -> bool:
        """End the episode; true, since its turn is done with."""
        self.dialogue.finish(status, failure)
        self._status, self._failure = status, failure
        return True

    def _break_off(self, error: Exception) -> None:
        """End the episode because a part of the harness failed."""
        self.dialogue.keep_drawn()
        self._end("failed", _failure("harness", error))

    def _abandon(self) -> None:
        """End the episode because the run ends.

        Errors of the store are passed over: what ended the run is the one to see.
        """
        with contextlib.suppress(AgentGymTokError):
            self.dialogue.keep_drawn()
        with contextlib.suppress(TraceError):
            self._end("abandoned")

    def _spawn(self, env: TokenEnv, info: Mapping[str, Any], head: EpisodeHead, subagents: Subagents) -> "Rollout":
        setup = replace(
            self._setup,
            tools=subagents.tools,
            sampling=subagents.sampling or self._setup.sampling,
            compaction=None,
        )
        return Rollout(
            env, info, head, setup, Spending(subagents.budget, self.dialogue.spending), depth=self._depth + 1
        )


def _failure(boundary: Boundary, error: Exception) -> Failure:
    return Failure(boundary, type(error).__name__, str(error))


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
