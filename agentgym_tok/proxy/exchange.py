"""One request and its answer: drawn, told to the client as far as it listens, and recorded as it was."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property

import numpy as np

from agentgym_tok.chat import ChatFormat, TurnStream, opens_reasoning
from agentgym_tok.chat.deltas import TextDelta, TurnDelta
from agentgym_tok.chat.stops import stop_end
from agentgym_tok.errors import AgentGymTokError, PolicyError, TransientPolicyError
from agentgym_tok.proxy.answering import GAVE_UP, SHUT_DOWN, Refused, Send
from agentgym_tok.proxy.attempts import Attempt, Delivery
from agentgym_tok.proxy.drafts import Answer, Draft, Evidence
from agentgym_tok.proxy.drawing import Drawer
from agentgym_tok.proxy.drift_names import completion_drift, prompt_drift, words_drift
from agentgym_tok.proxy.session import Session
from agentgym_tok.proxy.stop_cut import StopCut
from agentgym_tok.proxy.wire import (
    Ask,
    BadAsk,
    Choice,
    Opening,
    Reply,
    TokenLogprob,
    Usage,
    Wire,
    WireStream,
    call_namer,
    echo,
    pieces_of,
    wire_id,
)
from agentgym_tok.tokens import Ids, Logprobs, as_ids
from agentgym_tok.trace import Failure
from agentgym_tok.types import AssistantMessage, Completion, Request, Sampling

__all__ = ["Exchange", "TokenMode"]


class TokenMode:
    """Make contexts here, of ids that go on.

    Args:
        drawer: Where turns come from.
        chat: Tokenizer and template.
        defaults: Sampling parameters where a client sets none.
    """

    def __init__(self, drawer: Drawer, chat: ChatFormat, defaults: Sampling) -> None:
        self._drawer, self._chat, self._defaults = drawer, chat, defaults

    def begin(self, session: Session, ask: Ask, evidence: Evidence, body: bytes, wire: Wire) -> "Exchange":  # noqa: ARG002
        """Return what answers a request.

        Raises:
            BadAsk: It shows images, or names an answer that was never given.
            ChatError: The template refuses the conversation.
        """
        if ask.images:
            fix = "run the proxy with --mode engine, which passes images on"
            raise BadAsk("images cannot be turned into ids here", where="messages", fix=fix)
        draft = session.prepare(ask, evidence)
        try:
            return Exchange(session, draft, wire, self._drawer, self._chat, self._defaults)
        except BaseException:
            session.drop(draft)
            raise


class _Choice:
    """Draw one choice, and tell it.

    Args:
        exchange: Whose choice it is.
        index: Its place among the choices.
    """

    def __init__(self, exchange: "Exchange", index: int) -> None:
        self._exchange, self._index = exchange, index
        draft, chat = exchange.draft, exchange.chat
        context = draft.context
        self._tools = draft.ask.tools or None
        self._in_reasoning = opens_reasoning(chat, context.ids[-64:])
        self._cut = StopCut(exchange.sampling.stop)
        self.count = 0
        """Ids so far."""
        self._ids: list[Ids] = []
        self.completion: Completion | None = None
        self._said: AssistantMessage | None = None
        self.error: Exception | None = None
        self.drift: tuple[str, ...] = ()
        """Why it cannot be trained."""
        self.told_tokens = 0
        """Ids of which the client was told what they say."""
        seed = exchange.session.seed(draft, index)
        self.request = Request(context.ids, exchange.sampling, seed, conversation=exchange.session.head.id)

    @cached_property
    def _turn(self) -> TurnStream:
        return TurnStream(self._exchange.chat, self._tools, opened=self._in_reasoning)

    def push(self, ids_T: Ids, logprobs_T: Logprobs | None, *, exact: bool = True) -> bytes:
        """Take the next ids; returns what the client is told of them."""
        said = self._turn.push(ids_T)
        self._ids.append(ids_T)
        self.count += len(ids_T)
        ids = ids_T.tolist() if exact and self._exchange.draft.ask.token_ids else ()
        return self._tell(self._cut.add(said), self._logprobs(ids_T, logprobs_T), ids)

    def end(self, completion: Completion) -> bytes:
        """Take the whole turn; returns what the client is told at its end.

        Raises:
            PolicyError: It does not begin with its pieces, as where a stream loses ids and text stands in for them.
        """
        if not np.array_equal(self._pieces(), completion.ids_T[: self.count]):
            got = f"{self.count} ids in pieces, {len(completion.ids_T)} in the turn"
            raise PolicyError("the turn is another one than its pieces", where="the stream", got=got)
        rest_T = completion.ids_T[self.count :]
        told = b""
        if len(rest_T):
            logprobs_T = completion.logprobs_T
            rest_logprobs_T = None if logprobs_T is None else logprobs_T[len(logprobs_T) - len(rest_T) :]
            told = self.push(rest_T, rest_logprobs_T, exact=completion.ids_exact)
        told += self._tell(self._cut.add(self._turn.end()))
        return told + self._close(completion, self._turn.message)

    def finish(self, completion: Completion) -> None:
        """Take the whole turn at once; ids that no vocabulary has are an error of the engine."""
        try:
            message = self._exchange.chat.parse(completion.ids_T, self._tools, opened=self._in_reasoning)
        except AgentGymTokError as error:
            self.error = error
            return
        self._ids, self.count = [completion.ids_T], len(completion.ids_T)
        self._tell(self._cut.add(list(pieces_of(message))))
        self._close(completion, message)

    def _close(self, completion: Completion, message: AssistantMessage | None) -> bytes:
        """Take the end; returns what the client is told last."""
        self.completion, self._said = self._marked(completion), message
        self.drift = completion_drift(self.completion)
        told, stream = self._tell(self._cut.end()), self._exchange.stream
        # Behind a stop string nothing is told, so that what no piece of a turn could tell is not missed either.
        whole = message if self._cut.found is None else None
        return told + stream.close(completion.finish_reason, self._cut.found, self._index, whole, self.drift)

    def _marked(self, completion: Completion) -> Completion:
        """Return the turn, marked where it goes on behind a stop string, as an engine must not."""
        stop = self._exchange.sampling.stop
        end = stop_end(self._exchange.chat, completion.ids_T, stop) if stop else None
        if end is None or end == len(completion.ids_T):
            return completion
        note = "; ".join(filter(None, (completion.note, "it goes on behind a stop string")))
        return replace(completion, ids_exact=False, weight_versions=(), note=note)

    def told(self) -> Choice:
        """Return the choice as the client is told it."""
        assert self.completion is not None  # it has ended
        turn = self.completion
        said, tokens = self._exchange.stream.said(self._index), self._logprobs(turn.ids_T, turn.logprobs_T)
        ids = tuple(turn.ids_T.tolist()) if self._exchange.draft.ask.token_ids and turn.ids_exact else None
        return Choice(said, turn.finish_reason, self._cut.found, self._index, tokens, ids)

    def answer(self, failure: Failure | None = None, told_tokens: int | None = None) -> Answer:
        """Return what is recorded: the whole turn, or as far as it came."""
        completion = self.completion or self._partial()
        said = echo(Choice(self._exchange.stream.said(self._index), completion.finish_reason, None, self._index))
        prefill = self._exchange.draft.prefill
        told = replace(said, content=prefill + said.content) if prefill else said
        return Answer(completion, told, failure, told_tokens, self._said)

    def _partial(self) -> Completion:
        # What its log-probabilities are of is known with the whole turn only; broken ones are never trained.
        return Completion(self._pieces(), finish_reason="abort", sampling=self.request.sampling)

    def _pieces(self) -> Ids:
        return as_ids(np.concatenate(self._ids) if self._ids else [])

    def _tell(
        self, deltas: Iterable[TurnDelta], logprobs: Sequence[TokenLogprob] = (), ids: Sequence[int] = ()
    ) -> bytes:
        """Write pieces; all the ids and log-probabilities stand on the first one."""
        stream, told = self._exchange.stream, b""
        for delta in deltas:
            told, logprobs, ids = told + stream.add(delta, self._index, logprobs, ids), (), ()
        return told + (stream.add(TextDelta(""), self._index, logprobs, ids) if logprobs or ids else b"")

    def _logprobs(self, ids_T: Ids, logprobs_T: Logprobs | None) -> tuple[TokenLogprob, ...]:
        exchange = self._exchange
        if not exchange.draft.ask.logprobs or logprobs_T is None:
            return ()
        spelled = exchange.chat.token_bytes(ids_T)
        return tuple(
            TokenLogprob(exact.decode("utf-8", "replace"), logprob, exact)
            for exact, logprob in zip(spelled, logprobs_T.tolist(), strict=True)
        )


class Exchange:
    """Answer one request.

    Args:
        session: Whose it is.
        draft: What the engine gets.
        wire: The client's protocol.
        drawer: Where turns come from.
        chat: Tokenizer and template.
        defaults: Sampling parameters where the client sets none.
    """

    def __init__(
        self, session: Session, draft: Draft, wire: Wire, drawer: Drawer, chat: ChatFormat, defaults: Sampling
    ) -> None:
        self.session, self.draft, self.chat = session, draft, chat
        self.sampling = draft.ask.sampling_over(defaults)
        self.id = wire_id(wire.reply_prefix, session.head.id, draft.number)
        self.started = time.monotonic()
        self.first: float | None = None
        """When the first ids came, on the monotonic clock."""
        self._wire, self._drawer = wire, drawer
        self._prompt_ids = tuple(draft.context.ids.tolist()) if draft.ask.token_ids else None
        self._drift = prompt_drift(draft)
        opening = Opening(
            self.id,
            int(draft.started),
            draft.ask.model,
            call_namer(wire.call_prefix, session.head.id, draft.number),
            len(draft.context),
            prompt_ids=self._prompt_ids,
            drift=self._drift,
        )
        self.stream: WireStream = wire.stream(draft.ask, opening)
        self.choices = [_Choice(self, index) for index in range(draft.ask.n)]
        self._opened = False
        self._recorded: list[Attempt] | None = None

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        return Usage(len(self.draft.context), sum(choice.count for choice in self.choices))

    async def whole(self) -> bytes:
        """Draw and record the answer; returns its body.

        Raises:
            Refused: There is none.
        """
        try:
            drawn = await self._drawn()
        except asyncio.CancelledError:
            self._break_off()
            raise
        self.first = time.monotonic()
        for choice, answer in zip(self.choices, drawn, strict=True):
            if isinstance(answer, Completion):
                choice.finish(answer)
            else:
                choice.error = answer
        self._fail_if_any()
        self._record()
        reply = Reply(
            self.id,
            int(self.draft.started),
            self.draft.ask.model,
            tuple(choice.told() for choice in self.choices),
            self.usage,
            self._prompt_ids,
            tuple(dict.fromkeys([*self._drift, *(name for choice in self.choices for name in choice.drift)])),
        )
        return self._wire.reply_body(reply, self.draft.ask)

    async def streamed(self, send: Send) -> None:
        """Draw, tell and record the answer.

        Raises:
            Refused: There is none, and the client was told nothing yet; later it is told in the stream.
        """
        try:
            if len(self.choices) == 1:
                last = await self._tell(self.choices[0], send)
            else:
                last = b"".join(await asyncio.gather(*(self._tell(choice, send) for choice in self.choices)))
            try:
                self._fail_if_any()
            except Refused as refused:
                if not self._opened:
                    raise
                await send(self.stream.fail(refused.status, refused.message))
                return
        except asyncio.CancelledError:
            self._break_off()
            raise
        self._record()
        await self._send(send, last + self.stream.end(self.usage))

    async def keep_open(self, send: Send) -> None:
        """Tell the client that there is still somebody."""
        await self._send(send, self.stream.ping() if self._opened else b"")

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends a stream that cannot go on."""
        return self.stream.fail(status, message)

    def delivered(self, delivery: Delivery) -> None:
        """Note how much of the answer the client got."""
        if self._recorded:
            self.session.deliver(self._recorded, delivery)
            self._recorded = []  # once

    async def _drawn(self) -> list[Completion | Exception]:
        draws = [self._drawer.ask(choice.request) for choice in self.choices]
        return [await draws[0]] if len(draws) == 1 else await asyncio.gather(*draws)

    async def _tell(self, choice: _Choice, send: Send) -> bytes:
        """Tell a choice while it is drawn; returns what is to be told last."""
        try:
            async with aclosing(self._drawer.pieces(choice.request)) as deltas:
                async for delta in deltas:
                    self.first = self.first or time.monotonic()
                    if delta.completion is not None:
                        return choice.end(delta.completion)
                    if told := choice.push(delta.ids_T, delta.logprobs_T):
                        await self._send(send, told)
                    choice.told_tokens = choice.count
        except Exception as error:  # noqa: BLE001  # whatever an engine raises costs this request alone
            choice.error = error
        else:
            choice.error = PolicyError("the turn never ended", where=self._drawer.policy.name)
        return b""

    async def _send(self, send: Send, told: bytes) -> None:
        if not self._opened:
            self._opened, told = True, self.stream.start() + told
        await send(told)

    def _record(self) -> None:
        self._recorded = self.session.record(self.draft, [choice.answer() for choice in self.choices], self.id)

    def _break_off(self) -> None:
        """Record what the client left, as far as it came."""
        if self._recorded is not None:
            return
        task = asyncio.current_task()
        # Who was not told why, and was cancelled all the same, is at the end of its loop.
        by_us = task is not None and task.cancelling()
        failure = self.draft.broken or (SHUT_DOWN if by_us else GAVE_UP)
        answers = [choice.answer(failure, told_tokens=choice.told_tokens) for choice in self.choices]
        self._recorded = self.session.record(self.draft, answers)
        self.delivered("part" if self._opened else "none")

    def _fail_if_any(self) -> None:
        """Record a request that failed.

        Raises:
            Refused: One of its choices did.
        """
        error = next((choice.error for choice in self.choices if choice.error is not None), None)
        if error is None:
            return
        answers = []
        for choice in self.choices:
            # The client gets none of the choices, so a whole one must not count either.
            kind, words = type(error).__name__, str(choice.error or f"another choice failed: {error}")
            answers.append(choice.answer(Failure("policy", kind, words), told_tokens=choice.told_tokens))
        self._recorded = self.session.record(self.draft, answers)
        self.delivered("part" if self._opened else "none")
        again = isinstance(error, TransientPolicyError)
        what = error.what if isinstance(error, AgentGymTokError) else type(error).__name__
        message, drift = f"the engine failed: {what}", words_drift(what)
        raise Refused(503 if again else 502, message, again=again, drift=drift) from error
