"""`numpy:PATH`: a small Qwen2 in this process, by numpy alone, whose draws depend on nothing but context and seed."""

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import PolicyError, TransientPolicyError
from agentgym_tok.policies.base import BasePolicy, Listen
from agentgym_tok.policies.model_ids import check_model_ids
from agentgym_tok.policies.small.contexts import Row, borrow, parted, passes
from agentgym_tok.policies.small.draw import SeededTurn, draw, nats
from agentgym_tok.policies.small.forward import Network, Part, queries_of
from agentgym_tok.policies.small.keys import BLOCK, Kept, KeptConversations, common
from agentgym_tok.policies.small.shape import read_shape
from agentgym_tok.policies.small.steadiness import attention_is_steady, steady_rows
from agentgym_tok.policies.small.tensors import changed, read_tensors, replaced
from agentgym_tok.policies.small.tiles import ROWS
from agentgym_tok.policies.turn import no_numbers
from agentgym_tok.types import Completion, Request, Sampling, ScoreRequest, Scores

__all__ = ["NumpyPolicy"]

_LOG = logging.getLogger(__name__)


class NumpyPolicy(BasePolicy):
    """Sample from a small causal language model without torch, many conversations at a time.

    Same context, same seed, same ids: a token's bits do not depend on the requests that share its batch, on what was
    cached, on how a context was cut into passes, or on how many threads the BLAS has (`forward`). What that rests on is
    tried on this machine when a policy is made; where it does not hold, `deterministic` is False. Another kind of
    processor, or another BLAS, may round in another way.

    The keys and values of each conversation (`Request.conversation`) are kept, so that its next turn computes its new
    ids only. A context that begins as another one does, as all episodes begin with the same system prompt, takes that
    beginning over, also within a batch. New weights drop all that is kept.

    One thread may call `update_weights` while another one generates: the update lands between two tokens, and what was
    computed for the turns at hand is computed again. So each token is drawn from one version's distribution after its
    whole context, and `Completion.weight_versions` says which.

    Log-probabilities are those of the sampled ids, float32, in nats, with the meaning that they have in `hf:`, and
    `score` gives the same to the bit.

    Args:
        path: Folder of a `Qwen2ForCausalLM` as transformers writes it, with `config.json` and `*.safetensors` (float32,
            float16 or bfloat16; computed in float32).
        chat: Its ids must be those of the model's own tokenizer. Where the folder holds no `tokenizer.json`, the model
            must have just as many.
        batch_size: Most turns that are drawn at once; who waits begins when one ends.
        version: The weights' label on every token.
        cache_bytes: Most bytes of keys and values kept between turns (8 * layers * KV heads * head size, for each id).
            0 keeps none.

    Raises:
        DataMissing: There is no model at the path.
        DataCorrupt: Its files are broken, or do not belong together.
        ConfigError: It is of another kind, or has not as many ids as the chat format.
        FingerprintMismatch: An id stands for something else in the model's tokenizer, or that cannot be read.
    """

    listens = True
    computed_tokens = 0
    """Tokens of all forward passes so far, scoring included: what a cache saves shows here."""

    def __init__(
        self,
        path: str | Path,
        chat: ChatFormat,
        *,
        batch_size: PositiveInt = 64,
        version: str = "0",
        cache_bytes: NonNegativeInt = 2**30,
    ) -> None:
        folder = Path(path)
        self._shape = shape = read_shape(folder)
        check_model_ids(folder, chat, rows=shape.vocab_size, read=_tokenizer)
        rows = steady_rows(shape.products())
        self._rows = rows or ROWS
        self.deterministic = rows is not None and attention_is_steady(
            shape.kv_heads, queries_of(shape), shape.head_size
        )
        self._tensors = read_tensors(folder, shape)
        self._network = Network(shape, self._tensors, rows=self._rows)
        self._chat = chat
        self._batch_size = batch_size
        self._version = version
        self.name = f"numpy:{folder.name}"
        self.fingerprint = chat.fingerprint
        self.context_limit = shape.context
        self._caches = KeptConversations(cache_bytes)
        self._updates = 0
        self._turnstile, self._weights = threading.Lock(), threading.Lock()

    def generate(self, requests: Sequence[Request], listen: Listen | None = None) -> list[Completion | Exception]:
        """Answer a batch, in order.

        Args:
            requests: What is asked.
            listen: Is told of each token as it is drawn, and breaks turns off.

        Returns:
            The turns. Where the context of one is empty, or its logits are no numbers, a `PolicyError` stands in its
            place.

        Raises:
            TransientPolicyError: There was no memory; nothing was drawn.
        """
        turns = [
            SeededTurn(request, self._chat, self._shape.context - len(request.ids_T), listen) for request in requests
        ]
        for turn in turns:
            if not len(turn.request.ids_T):
                turn.fail(PolicyError("a model goes on from an id, and here is none", where=self.name))
        try:
            self._decode([turn for turn in turns if turn.open])
        except MemoryError as error:
            with self._weights:
                self._caches.clear()
            raise TransientPolicyError("no memory for the model", where=self.name, got=str(error)) from error
        return [turn.answer(self.name) for turn in turns]

    def _decode(self, turns: Sequence[SeededTurn]) -> None:
        waiting, rows = deque(Row(turn, Kept(self._shape)) for turn in turns), list[Row]()
        while waiting or rows:
            with self._turnstile:
                pass  # an update that waits goes first
            with self._weights:
                while waiting and len(rows) < self._batch_size:
                    rows.append(waiting.popleft())
                hidden_NH = self._advance(rows)
                logits_NV = self._network.logits(hidden_NH)[:, : self._chat.vocab_size]
                version = self._version
            draw([row.turn for row in rows], logits_NV, version)
            self._keep([row for row in rows if not row.turn.open])
            rows = [row for row in rows if row.turn.open]

    def _advance(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        """Compute what is not yet computed of each context; return what the last ids lead to, float32 [N, H]."""
        ready, late = [], []
        for row in rows:
            if row.update == self._updates:
                row.kept.expect([row.turn.last_id])
                ready.append(row)
            else:
                self._begin(row)
                late.append(row)
        hidden: dict[Kept, NDArray[np.float32]] = {}
        while ready or late:
            early, late = parted(late)
            for row in early:
                row.kept.expect(row.context_T[row.kept.length :])
            for parts in passes(row.kept for row in [*ready, *early]):
                hidden_TH, last_N = self._forward(parts)
                hidden |= {part.kept: hidden_TH[place] for part, place in zip(parts, last_N, strict=True)}
            for row in late:
                borrow(row, [other.kept for other in early])
            ready = []
        return np.stack([hidden[row.kept] for row in rows])

    def _begin(self, row: Row) -> None:
        """Find what is kept of a context: of its conversation, or of one that begins alike."""
        own = self._caches.take(row.turn.request.conversation) if row.update < 0 else None
        row.kept, row.update, row.context_T = own or Kept(self._shape), self._updates, row.turn.context()
        # Its last id is computed in any case: that one predicts the next.
        row.kept.length = common(row.kept.ids, row.context_T[:-1])
        if len(row.context_T) > row.kept.length + BLOCK:
            borrow(row, self._caches.latest())

    def _forward(self, parts: Sequence[Part]) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        self.computed_tokens += sum(part.stop - part.kept.length for part in parts)
        return self._network.forward(parts)

    def _keep(self, rows: Sequence[Row]) -> None:
        """Keep what was computed for conversations whose turns are over: all but the last id drawn."""
        with self._weights:
            for row in rows:
                conversation = row.turn.request.conversation
                if conversation and row.update == self._updates and not row.turn.failed:
                    self._caches.keep(conversation, row.kept)

    def update_weights(self, state: Any, version: str) -> None:
        """Put new weights in the place of the old ones, and drop every kept cache; tokens drawn from now on say so.

        Args:
            state: All tensors by the names of transformers, of torch or numpy; or a `weights.WeightDelta` against the
                weights here, which are float32.
            version: Their label.

        Raises:
            PolicyError: They are not this model's, or a change does not lead to the weights that were sent; then the
                old ones stay.
        """
        with self._turnstile, self._weights:
            take = replaced if isinstance(state, Mapping) else partial(changed, self._tensors)
            self._tensors = take(state, self._shape)
            self._network = Network(self._shape, self._tensors, rows=self._rows)
            self._version = version
            self._updates += 1
            _LOG.info("%s has weights %s: the caches of %d conversations go", self.name, version, len(self._caches))
            self._caches.clear()

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score each sequence in one run over its ids.

        Raises:
            PolicyError: A sequence is longer than the model's context, or a logit is not a number.
        """
        scores: list[Scores] = []
        for request in requests:
            with self._turnstile:
                pass
            with self._weights:
                scores.append(self._score(request))
        return scores

    def _score(self, request: ScoreRequest) -> Scores:
        length = max((end for _, end, _ in request.parts), default=0)
        if length > self._shape.context:
            raise PolicyError(
                "the sequence is longer than the model's context",
                where=self.name,
                got=f"{length} ids",
                expected=f"at most {self._shape.context}",
                fix="score with a model that has room for what was sampled",
            )
        kept = Kept(self._shape)
        kept.expect(
            request.ids_T[: max(0, length - 1)]
        )  # the last id is scored, and predicts nothing that is asked for
        raw, drawn = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
        for parts in passes([kept]):
            start, (hidden_TH, _), end = kept.length, self._forward(parts), parts[0].stop
            for first, last, sampling in request.parts:
                # The id at place p is predicted at p - 1.
                a, b = max(first - 1, start), min(last - 1, end)
                if a < b:
                    logits_SV = self._network.logits(hidden_TH[a - start : b - start])[:, : self._chat.vocab_size]
                    if not np.isfinite(logits_SV).all():
                        raise no_numbers(f"ids {a} to {b}")
                    targets_S = request.ids_T[a + 1 : b + 1]
                    raw.append(nats(logits_SV, targets_S, Sampling()))
                    drawn.append(nats(logits_SV, targets_S, sampling))
        raw_S, drawn_S = np.concatenate(raw), np.concatenate(drawn)
        raw_S.flags.writeable = drawn_S.flags.writeable = False
        return Scores(raw_S, drawn_S, self._version)


def _tokenizer(path: str | Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(Path(path) / "tokenizer.json"))
