"""One request and its answer: drawn, told to the client as far as it listens, and recorded as it was."""

import asyncio
import time

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import AgentGymTokError, TransientPolicyError
from agentgym_tok.proxy.answering import Refused, Send, why_broken
from agentgym_tok.proxy.attempts import Attempt, Delivery
from agentgym_tok.proxy.drafts import Draft, Evidence
from agentgym_tok.proxy.drawing import Drawer
from agentgym_tok.proxy.drawn_choice import DrawnChoice
from agentgym_tok.proxy.drift_names import prompt_drift, words_drift
from agentgym_tok.proxy.session import Session
from agentgym_tok.proxy.wire import (
    Ask,
    BadAsk,
    Opening,
    Reply,
    Usage,
    Wire,
    WireStream,
    call_namer,
    wire_id,
)
from agentgym_tok.trace import Failure
from agentgym_tok.types import Completion, Delta, Sampling

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
        self.choices = [
            DrawnChoice(
                draft,
                index,
                stream=self.stream,
                chat=chat,
                sampling=self.sampling,
                seed=session.seed(draft, index),
                conversation=session.head.id,
            )
            for index in range(draft.ask.n)
        ]
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

    async def _tell(self, choice: DrawnChoice, send: Send) -> bytes:
        """Tell a choice while it is drawn; returns what is to be told last."""

        async def tell(delta: Delta) -> None:
            self.first = self.first or time.monotonic()
            if told := choice.push(delta.ids_T, delta.logprobs_T):
                await self._send(send, told)
            choice.told_tokens = choice.count

        try:
            turn = await self._drawer.told(choice.request, tell)
            self.first = self.first or time.monotonic()
            return choice.end(turn)
        except Exception as error:  # noqa: BLE001  # whatever an engine raises costs this request alone
            choice.error = error
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
        failure = why_broken(self.draft)
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
            if choice.error is not None:
                choice.error.__traceback__ = None  # frames that hold the error, until the collector comes
            # The client gets none of the choices, so a whole one must not count either.
            kind, words = type(error).__name__, str(choice.error or f"another choice failed: {error}")
            answers.append(choice.answer(Failure("policy", kind, words), told_tokens=choice.told_tokens))
        self._recorded = self.session.record(self.draft, answers)
        self.delivered("part" if self._opened else "none")
        again = isinstance(error, TransientPolicyError)
        what = error.what if isinstance(error, AgentGymTokError) else type(error).__name__
        message, drift = f"the engine failed: {what}", words_drift(what)
        raise Refused(503 if again else 502, message, again=again, drift=drift) from error
