"""`llamacpp:PATH`: a GGUF model in this process (extra `llamacpp`)."""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import StopWatch
from agentgym_tok.errors import (
    ConfigError,
    DataMissing,
    FingerprintMismatch,
    MissingExtra,
    PolicyError,
    TransientPolicyError,
)
from agentgym_tok.policies.base import BasePolicy
from agentgym_tok.policies.llamacpp_piece import SMALLEST, Piece, question, read_piece
from agentgym_tok.tokens import as_ids, as_logprobs
from agentgym_tok.types import Completion, Delta, FinishReason, LogprobKind, Request, Sampling

try:
    import xllamacpp
except ImportError as error:
    raise MissingExtra(
        "GGUF models need xllamacpp", where="policy llamacpp:PATH", fix='pip install "agentgym-tok[llamacpp]"'
    ) from error

__all__ = ["LlamaCppPolicy"]

_LOG = logging.getLogger(__name__)

_PIECE = 32
"""Ids of one question: a turn is cut, streamed and given up between two of them."""

_REACHES = (2**8, 2**12, 2**16, 2**20)
"""How many candidates an id is looked for in, one after the other: most often it is near."""

_SAMPLE = 64
"""Most control tokens whose spelling is compared; of all ids, twice as many."""

_GREEDY = Sampling(temperature=0)


class LlamaCppPolicy(BasePolicy):
    """Sample from a GGUF model through llama.cpp's own server, which is called in this process and not by HTTP.

    A turn is drawn in pieces of 32 ids, each with a seed that follows from the request's; a stream says the same
    pieces. A turn ends at the chat format's stop tokens and at its stop strings, and nowhere else:
    where the model's file names another end of text, the turn goes on behind it.

    All sampling parameters are sent, and read back from each answer: temperature first, then top-k, then top-p, and
    nothing that llama.cpp or the file would do beside. Log-probabilities are of the model's own distribution, `raw`.
    llama.cpp leaves out those of ids that end in the middle of a character; they are asked for again, one by one.

    Keys and values are float32 and flash attention, whose products are half precision on a CPU, is off: so log-
    probabilities of a float32 file are those of transformers. What conversations have in common with earlier contexts
    is found by their ids, in the slots and in `cache_bytes` of other memory, and not computed again. A context that
    leaves no room ends as `truncated`; nothing is ever shifted out of it.

    llama.cpp opens a port on this machine's loopback address that cannot be switched off; it answers nobody without a
    key that nobody knows.

    Args:
        path: The GGUF file.
        chat: Its ids must be those of the file's tokenizer.
        context: Longest context with its turn, in ids; the model's own limit where that is shorter.
        slots: Turns that are drawn at once. Each takes the memory of a whole context when the policy is made: 8 bytes *
            layers * KV heads * head size, for each id.
        threads: Of one forward pass; None lets llama.cpp take every core. Take fewer where other work shares the
            machine: they wait for each other.
        cache_bytes: Most bytes of keys and values that are kept beside those of the slots. Raise it where more
            conversations run at once than there are slots, and they do not fit.

    Raises:
        DataMissing: There is no file at the path.
        PolicyError: llama.cpp cannot load it, or does not answer as it should.
        ConfigError: The chat format has ids that the model does not know.
        FingerprintMismatch: An id stands for something else in the file.
    """

    computed_tokens = 0
    """Places of all forward passes so far: what a cache saves shows here."""

    def __init__(
        self,
        path: str | Path,
        chat: ChatFormat,
        *,
        context: PositiveInt = 8192,
        slots: PositiveInt = 4,
        threads: PositiveInt | None = None,
        cache_bytes: NonNegativeInt = 4 * 2**30,
    ) -> None:
        if not Path(path).is_file():
            raise DataMissing("there is no model", where=str(path), expected="a GGUF file")
        self._chat = chat
        self.name = f"llamacpp:{Path(path).name}"
        self.engine = f"xllamacpp {xllamacpp.__version__} {Path(path).name}"
        self.fingerprint = chat.fingerprint
        self._computed = threading.Lock()
        self._plain = next(index for index in chat.tokenize("a b").tolist() if index not in chat.control_ids)
        try:
            self._server: Any = xllamacpp.Server(_parameters(path, context, slots, threads, cache_bytes))
        except RuntimeError as error:
            raise PolicyError("llama.cpp cannot load the model", where=str(path), got=str(error)) from error
        self._limit = self.context_limit = min(context, self._room_of_a_slot(context))
        self._check_ids(path)
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="llamacpp")
        _LOG.info("%s: %d slots of %d ids", self.engine, slots, self._limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the turns at hand, and give the model's memory back."""
        self._pool.shutdown(cancel_futures=True)
        self._server = None

    def answer(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            PolicyError: llama.cpp refused or failed, or the deadline passed (`transient`).
            InvalidIds: An id was drawn that the chat format does not have.
        """
        *_, last = self._deltas(request)
        assert last.completion is not None
        return last.completion

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Answer a batch, as many at once as there are slots; an exception in a turn's place says why there is none."""
        return list(self._pool.map(self._kept, requests))

    async def complete(self, request: Request) -> Completion:
        """Answer one request, so that many may be asked with none waiting for a batch; see `answer`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.answer, request)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Answer one request piece by piece.

        Raises:
            PolicyError: As in `answer`.
        """
        deltas, loop = self._deltas(request), asyncio.get_running_loop()
        while (delta := await loop.run_in_executor(self._pool, next, deltas, None)) is not None:
            yield delta

    def _deltas(self, request: Request) -> Iterator[Delta]:
        """Yield the pieces of a turn, and the whole one behind them."""
        sampling, context = request.sampling, request.ids_T.tolist()
        room = max(0, min(sampling.max_tokens, self._limit - len(context)))
        finish: FinishReason = "length" if room == sampling.max_tokens else "truncated"
        watch = StopWatch(self._chat, sampling.stop)
        ids: list[int] = []
        logprobs: list[float] = []
        number = 0
        while len(ids) < room and finish != "stop":
            if request.deadline is not None and time.time() > request.deadline:
                got = f"{len(ids)} ids when its deadline passed"
                raise TransientPolicyError("the engine gave no answer in time", where=self.name, got=got)
            start, count = len(ids), min(_PIECE, room - len(ids))
            piece = self._ask(question(context + ids, sampling, count, _seed(request.seed, number)))
            number += 1
            as_ids(piece.ids, where=f"ids of {self.name}", vocab_size=self._chat.vocab_size)
            for index, logprob in zip(piece.ids, piece.logprobs, strict=True):
                logprobs.append(self._looked_up(context + ids, index) if logprob is None else logprob)
                ids.append(index)
                if watch.push(index) or index in self._chat.stop_ids:
                    finish = "stop"
                    break
            yield Delta(as_ids(ids[start:]), as_logprobs(logprobs[start:], len(ids) - start))
        kind: LogprobKind = "raw" if min(logprobs, default=0.0) > SMALLEST else "sentinel"
        completion = Completion(
            as_ids(ids),
            as_logprobs(logprobs, len(ids)),
            finish_reason=finish,
            logprobs=kind,
            engine=self.engine,
            sampling=sampling,
        )
        yield Delta(as_ids([]), None, completion)

    def _looked_up(self, context: list[int], index: int) -> float:
        """Return the log-probability of an id, from among those of the likeliest ones."""
        for count in _REACHES:
            found = (one.logprob for one in self._ask(self._survey(context, count)).candidates if one.id == index)
            if (logprob := next(found, None)) is not None:
                return min(0.0, logprob)
        raise PolicyError("llama.cpp gives no log-probability of an id", where=self.name, got=index)

    def _survey(self, context: list[int], count: int) -> dict[str, Any]:
        """Return the question for the likeliest ids behind a context; what is drawn there leaves no half character."""
        return question(context, _GREEDY, 1, 0, candidates=count) | {"logit_bias": [[self._plain, 1e9]]}

    def _ask(self, asked: dict[str, Any]) -> Piece:
        server = self._server
        if server is None:
            raise PolicyError("the policy was closed", where=self.name)
        piece = read_piece(server.handle_completions(asked), asked, self.name)
        with self._computed:
            self.computed_tokens += piece.computed
        return piece

    def _room_of_a_slot(self, context: int) -> int:
        """Return how long a context llama.cpp has room for; what is too long for it says so."""
        too_long = context + 256  # it rounds up to a multiple of this
        answer = self._server.handle_completions(question([self._plain] * too_long, _GREEDY, 1, 0))
        failed = answer.get("error", {})
        if not isinstance(failed.get("n_ctx"), int):
            what = "llama.cpp does not say how long a context may be"
            raise PolicyError(what, where=self.name, got=str(answer)[:300])
        return int(failed["n_ctx"])

    def _check_ids(self, path: str | Path) -> None:
        """Refuse a chat format whose ids mean something else to the model; llama.cpp spells out what it is sent."""
        chat, fix = self._chat, "use ChatFormat.from_pretrained on the model's own tokenizer"
        try:
            self._ask(self._survey([chat.vocab_size - 1], 1))
        except PolicyError as error:
            if "invalid tokens" not in str(error.got):
                raise
            what = "the chat format has ids that the model does not know"
            raise ConfigError(what, where=str(path), got=f"{chat.vocab_size} ids: {error.got}", fix=fix) from error
        ids = _sample(chat)[: self._limit - 1]
        expected, got = "".join(map(chat.token_text, ids)), self._ask(self._survey(ids, 1)).prompt
        if got != expected:
            place = next((place for place, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), len(got))
            raise FingerprintMismatch(
                "the chat format has another vocabulary than the model",
                where=str(path),
                got=f"{got[place : place + 40]!r} for some of its ids",
                expected=f"{expected[place : place + 40]!r} ({chat.reference})",
                fix=fix,
            )


def _sample(chat: ChatFormat) -> list[int]:
    """Return ids to compare: those that structure turns, and some from all of the vocabulary; no half characters."""
    controls = [*chat.stop_ids, *sorted(chat.control_ids)[:_SAMPLE]]
    spread = np.linspace(0, chat.vocab_size - 1, 2 * _SAMPLE).astype(int).tolist()
    return [index for index in dict.fromkeys(controls + spread) if "\ufffd" not in chat.token_text(index)]


def _parameters(path: str | Path, context: int, slots: int, threads: int | None, cache_bytes: int) -> Any:
    given = xllamacpp.CommonParams()
    given.model.path = str(path)
    given.n_ctx, given.n_parallel, given.kv_unified = context * slots, slots, False
    given.ctx_shift = given.fit_params = given.warmup = False
    given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    given.cache_ram_mib = cache_bytes >> 20
    if threads is not None:
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
    given.chat_template = "chatml"  # nobody uses it; the file's own would keep it from loading where it is broken
    given.ui = given.endpoint_slots = False
    given.api_keys = [secrets.token_hex()]
    given.verbosity = 0
    return given


def _seed(seed: int, number: int) -> int:
    """Return the seed of a piece: 32 bits, but never all ones, which llama.cpp takes for a random one."""
    return int(np.random.SeedSequence((seed % 2**64, number)).generate_state(1)[0]) % (2**32 - 1)
