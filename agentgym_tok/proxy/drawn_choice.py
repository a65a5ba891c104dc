"""One choice of an answer while it is drawn: its ids, and what the client is told of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from agentgym_tok.chat import ChatFormat, TurnStream, opens_reasoning
from agentgym_tok.chat.deltas import TextDelta, TurnDelta
from agentgym_tok.chat.stops import stop_end
from agentgym_tok.errors import AgentGymTokError, PolicyError
from agentgym_tok.proxy.drafts import Answer, Draft
from agentgym_tok.proxy.drift_names import completion_drift
from agentgym_tok.proxy.stop_cut import StopCut
from agentgym_tok.proxy.wire import Choice, TokenLogprob, WireStream, echo, pieces_of
from agentgym_tok.tokens import Ids, Logprobs, as_ids
from agentgym_tok.trace import Failure
from agentgym_tok.types import AssistantMessage, Completion, Request, Sampling

__all__ = ["DrawnChoice"]


class DrawnChoice:
    """Hold one choice of an answer: what was drawn of it, and what of that the client is told.

    Args:
        draft: What was asked.
        index: Its place among the choices.
        stream: Writes what the client is told.
        chat: Tokenizer and template.
        sampling: The parameters in force.
        seed: Of the choice.
        conversation: Key of the engine's cache.
    """

    def __init__(
        self,
        draft: Draft,
        index: int,
        *,
        stream: WireStream,
        chat: ChatFormat,
        sampling: Sampling,
        seed: int,
        conversation: str,
    ) -> None:
        self._draft, self._index, self._stream, self._chat = draft, index, stream, chat
        self._tools = draft.ask.tools or None
        self._in_reasoning = opens_reasoning(chat, draft.context.ids[-64:])
        self._cut = StopCut(sampling.stop)
        self.request = Request(draft.context.ids, sampling, seed, conversation=conversation)
        """What the policy is asked."""
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

    @cached_property
    def _turn(self) -> TurnStream:
        return TurnStream(self._chat, self._tools, opened=self._in_reasoning)

    def push(self, ids_T: Ids, logprobs_T: Logprobs | None, *, exact: bool = True) -> bytes:
        """Take the next ids; returns what the client is told of them."""
        said = self._turn.push(ids_T)
        self._ids.append(ids_T)
        self.count += len(ids_T)
        ids = ids_T.tolist() if exact and self._draft.ask.token_ids else ()
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
            message = self._chat.parse(completion.ids_T, self._tools, opened=self._in_reasoning)
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
        told, stream = self._tell(self._cut.end()), self._stream
        # Behind a stop string nothing is told, so that what no piece of a turn could tell is not missed either.
        whole = message if self._cut.found is None else None
        return told + stream.close(completion.finish_reason, self._cut.found, self._index, whole, self.drift)

    def _marked(self, completion: Completion) -> Completion:
        """Return the turn, marked where it goes on behind a stop string, as an engine must not."""
        stop = self.request.sampling.stop
        end = stop_end(self._chat, completion.ids_T, stop) if stop else None
        if end is None or end == len(completion.ids_T):
            return completion
        note = "; ".join(filter(None, (completion.note, "it goes on behind a stop string")))
        return replace(completion, ids_exact=False, weight_versions=(), note=note)

    def told(self) -> Choice:
        """Return the choice as the client is told it."""
        assert self.completion is not None  # it has ended
        turn = self.completion
        said, tokens = self._stream.said(self._index), self._logprobs(turn.ids_T, turn.logprobs_T)
        ids = tuple(turn.ids_T.tolist()) if self._draft.ask.token_ids and turn.ids_exact else None
        return Choice(said, turn.finish_reason, self._cut.found, self._index, tokens, ids)

    def answer(self, failure: Failure | None = None, told_tokens: int | None = None) -> Answer:
        """Return what is recorded: the whole turn, or as far as it came."""
        completion = self.completion or self._partial()
        said = echo(Choice(self._stream.said(self._index), completion.finish_reason, None, self._index))
        prefill = self._draft.prefill
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
        stream, told = self._stream, b""
        for delta in deltas:
            told, logprobs, ids = told + stream.add(delta, self._index, logprobs, ids), (), ()
        return told + (stream.add(TextDelta(""), self._index, logprobs, ids) if logprobs or ids else b"")

    def _logprobs(self, ids_T: Ids, logprobs_T: Logprobs | None) -> tuple[TokenLogprob, ...]:
        if not self._draft.ask.logprobs or logprobs_T is None:
            return ()
        spelled = self._chat.token_bytes(ids_T)
        return tuple(
            TokenLogprob(exact.decode("utf-8", "replace"), logprob, exact)
            for exact, logprob in zip(spelled, logprobs_T.tolist(), strict=True)
        )
