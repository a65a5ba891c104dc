"""`--mode engine`: the engine renders and its answer is passed on as it is; only its ids are recorded.

For what no chat format makes ids of, such as images. Requests go to vLLM's chat completions, which tell their ids where
they are asked to; a turn whose ids are not told whole is kept, marked and never trained, and so is one that saw images.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import AgentGymTokError, PolicyError, TransientPolicyError
from agentgym_tok.policies.http.failures import Refused as EngineRefused
from agentgym_tok.policies.http.failures import Transient
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.policies.http.vllm_replies import TurnReader
from agentgym_tok.proxy.answering import Refused, Send, why_broken
from agentgym_tok.proxy.attempts import Attempt, Delivery
from agentgym_tok.proxy.drafts import Answer, Draft, Evidence
from agentgym_tok.proxy.drift_names import prompt_drift, words_drift
from agentgym_tok.proxy.journal import Journal
from agentgym_tok.proxy.session import Session
from agentgym_tok.proxy.wire import Ask, BadAsk, Image, Usage, Wire, sse
from agentgym_tok.proxy.wire.openai_errors import error_document
from agentgym_tok.proxy.wire.reply import json_bytes
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.trace import Failure, TraceStore
from agentgym_tok.types import Completion, Message, Request, Sampling

__all__ = ["PATH", "EngineExchange", "EngineMode"]

PATH: Final = "/v1/chat/completions"
"""The one path whose answers tell ids."""

_ASKED: Final = {"return_token_ids": True, "logprobs": True}
_PLAIN: Final = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""What no client may set to anything else, and what a model's own `generation_config` must not set either."""
_DONE: Final = b"data: [DONE]\n\n"


class EngineMode:
    """Let the engine make contexts.

    Args:
        policy: The engine.
        chat: Tokenizer and template of its model.
        defaults: Sampling parameters where a client sets none.
        store: Keeps images.
        journal: Writes to it.
    """

    def __init__(
        self, policy: VLLMPolicy, chat: ChatFormat, defaults: Sampling, store: TraceStore, journal: Journal
    ) -> None:
        self._policy, self._chat, self._defaults, self._store, self._journal = policy, chat, defaults, store, journal

    def begin(self, session: Session, ask: Ask, evidence: Evidence, body: bytes, wire: Wire) -> "EngineExchange":  # noqa: ARG002
        """Return what answers a request.

        Raises:
            BadAsk: It asks for several choices.
        """
        if ask.n > 1:
            raise BadAsk("one choice at a time in --mode engine", where="n", got=ask.n, expected="1")
        for image in ask.images:
            self._keep(image)
        draft = session.open(ask, evidence)
        try:
            return EngineExchange(session, draft, body, self._policy, self._chat, self._defaults)
        except BaseException:
            session.drop(draft)
            raise

    def _keep(self, image: Image) -> None:
        """Store what a conversation shows: the file, or the address where only that is known."""
        known = (
            (image.body, image.media_type) if image.body is not None else ((image.url or "").encode(), "text/uri-list")
        )
        self._journal.put(lambda: self._store.add_image(*known), lambda _: None)


class EngineExchange:
    """Pass one request on, and record what the engine says of its ids.

    Args:
        session: Whose it is.
        draft: The turn.
        body: The request.
        policy: The engine.
        chat: Tokenizer and template of its model.
        defaults: Sampling parameters where the client sets none.
    """

    def __init__(
        self, session: Session, draft: Draft, body: bytes, policy: VLLMPolicy, chat: ChatFormat, defaults: Sampling
    ) -> None:
        self.session, self.draft = session, draft
        self.sampling = draft.ask.sampling_over(defaults)
        self.started = time.monotonic()
        self.first: float | None = None
        """When the first ids came, on the monotonic clock."""
        self._policy, self._chat = policy, chat
        asked: dict[str, Any] = json.loads(body)
        self._wanted = {name for name in _ASKED if asked.get(name)}
        self._body = {**_in_force(self.sampling, session.seed(draft, 0), asked), **_ASKED, "model": policy.model}
        self._reader: TurnReader | None = None
        self._drift: tuple[str, ...] = ()
        self._ids: list[Ids] = []
        self._count = 0
        self._told = 0
        """Ids of which the client was told what they say."""
        self._opened = False
        self._recorded: list[Attempt] | None = None

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        prepared = self.draft.prepared
        return Usage(0 if prepared is None else len(prepared.context), self._count)

    async def whole(self) -> bytes:
        """Return the engine's answer, and record it.

        Raises:
            Refused: There is none.
        """
        try:
            document = await self._policy.server.ask(PATH, self._body)
            self._take(document)
            turn = self._completion()
        except asyncio.CancelledError:
            self._break_off(why_broken(self.draft))
            raise
        except AgentGymTokError as error:
            raise self._failed(error) from error
        self._record(turn)
        return json_bytes(self._without(document))

    async def streamed(self, send: Send) -> None:
        """Pass the engine's answer on while it comes, and record it.

        Raises:
            Refused: There is none, and the client was told nothing yet.
        """
        try:
            async with aclosing(self._policy.server.events(PATH, self._body)) as events:
                async for document in events:
                    self._take(document)
                    self._opened = True
                    await send(sse.data(self._without(document)))
                    self._told = self._count
            turn = self._completion()
        except asyncio.CancelledError:
            self._break_off(why_broken(self.draft))
            raise
        except AgentGymTokError as error:
            if not self._opened:
                raise self._failed(error) from error
            refused = self._failed(error)
            await send(self.fail(refused.status, refused.message))
            return
        self._record(turn)
        await send(_DONE)

    async def keep_open(self, send: Send) -> None:
        """Tell the client that there is still somebody."""
        self._opened = True
        await send(sse.COMMENT)

    def fail(self, status: int, message: str) -> bytes:
        """Return what ends a stream that cannot go on."""
        return sse.data({"error": error_document(status, message)})

    def delivered(self, delivery: Delivery) -> None:
        """Note how much of the answer the client got."""
        if self._recorded:
            self.session.deliver(self._recorded, delivery)
            self._recorded = []  # once

    def _take(self, document: Any) -> None:
        """Read the ids of an answer, or of a piece of it."""
        if self._reader is None:
            prompt = _prompt_of(document)
            if prompt is None:
                fix = "start vLLM 0.11 or later, which knows return_token_ids"
                raise PolicyError("the engine does not tell its prompt", where=self._policy.name, fix=fix)
            prompt_T = as_ids(prompt, where="prompt of the engine", vocab_size=self._chat.vocab_size)
            self.session.fit(self.draft, prompt_T)
            self._drift = prompt_drift(self.draft)
            request = Request(prompt_T, self.sampling)
            self._reader = TurnReader(
                request, self.sampling.max_tokens, self._chat, self._policy.name, self._policy.engine, self._policy.kind
            )
        delta = self._reader.add(document)
        if delta is not None:
            self.first = self.first or time.monotonic()
            self._ids.append(as_ids(delta.ids_T, where="ids of the engine", vocab_size=self._chat.vocab_size))
            self._count += len(delta.ids_T)

    def _completion(self) -> Completion:
        if self._reader is None:
            raise Transient("the answer is empty", where=self._policy.name, expected="a turn")
        return self._reader.completion()

    def _break_off(self, failure: Failure) -> None:
        """Record a turn as far as it came; before the engine told its prompt it has no context, and is no turn."""
        if self._recorded is not None:
            return
        if self.draft.prepared is None:
            self.session.drop(self.draft)
            return
        # What its log-probabilities are of is known with the whole turn only; broken ones are never trained.
        ids_T = as_ids(np.concatenate(self._ids) if self._ids else [])
        self._record(Completion(ids_T, finish_reason="abort", sampling=self.sampling), failure, self._told)
        self.delivered("part" if self._opened else "none")

    def _record(self, turn: Completion, failure: Failure | None = None, told_tokens: int | None = None) -> None:
        if self.draft.ask.images:
            note = "; ".join(filter(None, (turn.note, "its context shows images, which no ids tell")))
            turn = replace(turn, ids_exact=False, note=note)
        said = self._chat.parse(turn.ids_T, self.draft.ask.tools or None)
        told = Message("assistant", said.content, tool_calls=said.tool_calls, reasoning=said.reasoning)
        self._recorded = self.session.record(self.draft, [Answer(turn, told, failure, told_tokens)])

    def _failed(self, error: AgentGymTokError) -> Refused:
        self._break_off(Failure("policy", type(error).__name__, str(error)))
        if isinstance(error, EngineRefused) and error.status is not None:
            return Refused(error.status, f"the engine refuses: {error.got}")
        again = isinstance(error, TransientPolicyError)
        drift = words_drift(error.what)
        return Refused(503 if again else 502, f"the engine failed: {error.what}", again=again, drift=drift)

    def _without(self, document: Any) -> Any:
        """Return an answer without what the client did not ask for, and with what is to be known of its ids."""
        if "return_token_ids" not in self._wanted:
            document = {name: value for name, value in document.items() if name != "prompt_token_ids"}
        gone = {"return_token_ids": ("token_ids", "prompt_token_ids"), "logprobs": ("logprobs",)}
        hidden = {name for asked, names in gone.items() if asked not in self._wanted for name in names}
        choices = [
            {name: value for name, value in choice.items() if name not in hidden}
            for choice in document.get("choices") or ()
        ]
        drift, self._drift = self._drift, ()  # once
        return {**document, "choices": choices, **({"drift": drift} if drift else {})}


def _in_force(sampling: Sampling, seed: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with all that decides what is drawn: what its client set, in its own words, and the rest."""
    ours = {
        **_PLAIN,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,  # the value for "all" that every version knows
        "stop": list(sampling.stop),
        "seed": seed,
    }
    if asked.get("max_completion_tokens") is None:
        ours["max_tokens"] = sampling.max_tokens
    return {**asked, **{name: value for name, value in ours.items() if asked.get(name) is None}}


def _prompt_of(document: Any) -> Any:
    if not isinstance(document, dict):
        return None
    listed = document.get("choices")
    choices = [choice for choice in (listed if isinstance(listed, list) else ()) if isinstance(choice, dict)]
    told = (document.get("prompt_token_ids"), *(choice.get("prompt_token_ids") for choice in choices))
    return next((ids for ids in told if ids is not None), None)
