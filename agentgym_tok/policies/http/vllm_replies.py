"""What a vLLM server answers, read the same way whole or in pieces, with every doubt turned into a mark or an error.

Traps that are handled here (issues are of vllm-project/vllm unless another project is named): the prompt's ids stand in
the reply or in its choice, in a stream on the first piece only; ids that are missing (#28246) or that miss control
tokens (#27482, #29074) or the last one (#28185); the log-probability -9999 for one that nobody knows; a stream that
ends early or says something twice.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import end_doubt
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.http.failures import Transient
from agentgym_tok.policies.http.reply import ReplyPart, read_reply
from agentgym_tok.policies.http.text_turn import encoded_turn
from agentgym_tok.tokens import Ids, Logprobs, as_ids, as_logprobs
from agentgym_tok.types import Completion, Delta, FinishReason, LogprobKind, Request

__all__ = ["TurnReader"]

_SENTINEL = -9999.0
_HIGHEST_ID = 2**31 - 1
_FINISH: dict[str, FinishReason] = {"stop": "stop", "tool_calls": "stop", "length": "length", "abort": "abort"}


class _Entry(ReplyPart):
    token: str = ""
    token_id: int | None = None
    logprob: float | None = None


class _Logprobs(ReplyPart):
    content: list[_Entry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None

    def read(self) -> tuple[list[int | None], list[float | None]]:
        """Return each token's id, as far as it is named, and its log-probability."""
        if self.content is not None:
            ids = [_named(entry.token) if entry.token_id is None else entry.token_id for entry in self.content]
            return ids, [entry.logprob for entry in self.content]
        logprobs = self.token_logprobs or []
        names = self.tokens if self.tokens is not None else [""] * len(logprobs)
        return [_named(name) for name in names], logprobs


class _Run(ReplyPart):
    version: str
    start: int
    end: int


class _Text(ReplyPart):
    content: str | None = None


class _Choice(ReplyPart):
    index: Literal[0] = 0
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[_Run] | None = None
    text: str | None = None
    message: _Text | None = None
    delta: _Text | None = None


class _Usage(ReplyPart):
    prompt_tokens: int
    completion_tokens: int | None = None


class _Reply(ReplyPart):
    choices: list[_Choice]
    prompt_token_ids: list[int] | None = None
    usage: _Usage | None = None


@dataclass(slots=True)
class TurnReader:
    """Collect one turn from a reply, or from the pieces of one.

    Args:
        request: What was asked.
        room: Most tokens that were asked for.
        chat: Knows the stop tokens.
        where: The address, for errors.
        engine: Name that the completion carries.
        kind: What the server's log-probabilities are of.
        streamed: The reply comes in pieces.
    """

    request: Request
    room: int
    chat: ChatFormat
    where: str
    engine: str
    kind: LogprobKind
    streamed: bool = False
    _ids: list[int] = field(default_factory=list)
    _logprobs: list[float | None] = field(default_factory=list)
    _runs: list[_Run] = field(default_factory=list)
    _text: str = ""
    _finish: str | None = None
    _doubts: dict[str, None] = field(default_factory=dict)

    def add(self, document: Any) -> Delta | None:
        """Take a whole reply or the next piece; returns what is new.

        Raises:
            Garbled: It is no reply.
            Transient: It tells of a failure, or repeats or leaves out ids of the stream.
            PolicyError: The engine did not get the ids that were sent.
        """
        start = len(self._ids)
        self.take(document)
        if len(self._ids) == start:
            return None
        new, known = self._ids[start:], [value for value in self._logprobs[start:] if value is not None]
        return Delta(_few_ids(new), _few_logprobs(known) if len(known) == len(new) else None)

    def take(self, document: Any) -> None:
        """Take a whole reply or the next piece, for whoever waits for the completion.

        Raises:
            Garbled: It is no reply.
            Transient: It tells of a failure, or repeats or leaves out ids of the stream.
            PolicyError: The engine did not get the ids that were sent.
        """
        if isinstance(document, dict) and document.get("error") is not None:
            raise Transient("the engine failed while it answered", where=self.where, got=str(document["error"])[:300])
        reply = read_reply(_Reply, document, self.where)
        self._check_prompt(reply)
        for choice in reply.choices:
            self._take(choice)
        self._count(reply.usage)

    def completion(self) -> Completion:
        """Return the turn.

        Raises:
            Transient: It has no end.
            PolicyError: It has an end that is none, or neither ids nor text.
        """
        if self._finish is None:
            raise Transient("the answer has no end", where=self.where, expected="a finish reason")
        finish = _FINISH.get(self._finish)
        if finish is None:
            raise PolicyError("the engine ended the turn", where=self.where, got=f"finish reason {self._finish!r}")
        ids_T = as_ids(self._ids, where=f"ids of {self.where}", vocab_size=self.chat.vocab_size)
        if len(ids_T) > self.room:
            what, got = "the engine returned more than was asked for", f"{len(ids_T)} ids"
            raise PolicyError(what, where=self.where, got=got, expected=f"at most {self.room}")
        if "no ids" in self._doubts:
            if not self._text:
                raise PolicyError("the answer holds no ids", where=self.where, fix="ask vLLM for return_token_ids")
            ids_T = encoded_turn(self.chat, self._text, stopped=finish == "stop", stop=self.request.sampling.stop)
        elif doubt := end_doubt(self.chat, ids_T, self.request.sampling.stop, stopped=finish == "stop"):
            self._doubts[doubt] = None
        if finish == "length" and self.room < self.request.sampling.max_tokens:
            finish = "truncated"
        logprobs_T, kind = self._evidence(len(ids_T))
        return Completion(
            ids_T,
            logprobs_T,
            finish_reason=finish,
            weight_versions=() if self._doubts else tuple((run.version, run.start, run.end) for run in self._runs),
            ids_exact=not self._doubts,
            logprobs=kind,
            engine=self.engine,
            sampling=self.request.sampling,
            note="; ".join(self._doubts),
        )

    def _check_prompt(self, reply: _Reply) -> None:
        self._compare_prompt(reply.prompt_token_ids)
        for choice in reply.choices:
            self._compare_prompt(choice.prompt_token_ids)
        if reply.usage is not None and reply.usage.prompt_tokens != len(self.request.ids_T):
            raise self._other_prompt(f"{reply.usage.prompt_tokens} ids")

    def _compare_prompt(self, ids: list[int] | None) -> None:
        sent_T = self.request.ids_T
        if ids is not None and ids != sent_T.tolist():
            differ = (place for place, (a, b) in enumerate(zip(ids, sent_T, strict=False)) if a != b)
            place = next(differ, min(len(ids), len(sent_T)))
            raise self._other_prompt(f"{len(ids)} ids, other ones from place {place} on")

    def _other_prompt(self, got: str) -> PolicyError:
        return PolicyError(
            "the engine read other ids than were sent",
            where=self.where,
            got=got,
            expected=f"the {len(self.request.ids_T)} ids that the trace holds",
            fix="use an endpoint that takes ids: start vLLM with --enable-scale-out",
        )

    def _take(self, choice: _Choice) -> None:
        if self._finish is not None:
            raise Transient("the answer goes on after its end", where=self.where)
        self._finish = choice.finish_reason
        said = choice.message or choice.delta
        text = choice.text or (said.content if said else None) or ""
        self._text += text
        if choice.token_ids is None:
            # A stream's first piece only opens the message.
            if text or (choice.finish_reason is not None and not self._ids):
                self._doubts["no ids"] = None
            return
        self._ids += choice.token_ids
        named, logprobs = choice.logprobs.read() if choice.logprobs else ([], [])
        # Equal in the usual case, which one look tells.
        if named != choice.token_ids and any(
            name not in (None, index) for name, index in zip(named, choice.token_ids, strict=False)
        ):
            self._doubts["the log-probabilities are of other ids"] = None
        elif logprobs and len(logprobs) != len(choice.token_ids):
            self._doubts["not as many log-probabilities as ids"] = None
        self._logprobs += logprobs or [None] * len(choice.token_ids)
        self._runs += choice.weight_versions or []

    def _count(self, usage: _Usage | None) -> None:
        if usage is None or usage.completion_tokens in (None, len(self._ids)) or "no ids" in self._doubts:
            return
        if not self._ids:
            self._doubts["no ids"] = None
            return
        got = f"{len(self._ids)} ids of {usage.completion_tokens} that were drawn"
        if self.streamed:
            raise Transient("the stream repeats ids or leaves some out", where=self.where, got=got)
        self._doubts[got] = None

    def _evidence(self, length: int) -> tuple[Logprobs | None, LogprobKind]:
        known = [value for value in self._logprobs if value is not None]
        if len(known) != length or len(self._logprobs) != length or self._doubts or self.kind == "missing":
            return None, "missing"
        return as_logprobs(known, length), "sentinel" if any(value <= _SENTINEL for value in known) else self.kind


# Of few numbers numpy's own looks at them would take longer than all else that is done for a piece.


def _few_ids(ids: list[int]) -> Ids:
    if min(ids) < 0 or max(ids) > _HIGHEST_ID:
        return as_ids(ids)
    ids_T = np.array(ids, dtype=np.int32)
    ids_T.flags.writeable = False
    return ids_T


def _few_logprobs(logprobs: list[float]) -> Logprobs:
    if min(logprobs) < _SENTINEL or max(logprobs) > 0:
        return as_logprobs(logprobs, len(logprobs))
    logprobs_T = np.array(logprobs, dtype=np.float32)
    logprobs_T.flags.writeable = False
    return logprobs_T


def _named(token: str) -> int | None:
    head, _, number = token.partition("token_id:")
    return int(number) if not head and number.isdecimal() else None
