"""`vllm:URL#MODEL`: a running vLLM server, by the most exact endpoint that it offers (extra `engines`)."""

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat, PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, FingerprintMismatch, PolicyError, TransientPolicyError, unknown_name
from agentgym_tok.policies.base import Tell
from agentgym_tok.policies.http.engine import HttpEngine
from agentgym_tok.policies.http.failures import Garbled, Refused, Transient
from agentgym_tok.policies.http.policy import HttpPolicy, split_address
from agentgym_tok.policies.http.version_gate import VersionGate
from agentgym_tok.policies.http.vllm_replies import TurnReader
from agentgym_tok.policies.vllm_sampling import sampling_parameters
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Completion, LogprobKind, Request, Sampling

if TYPE_CHECKING:
    import torch

    from agentgym_tok.policies.http.vllm_weights import ServedWeights
    from agentgym_tok.policies.weights import WeightDelta

__all__ = ["VLLMPolicy"]

_LOG = logging.getLogger(__name__)

_PROBE_TEXT = "Thought: unbelievable 日本語 café\n\n  x = 12345 "
"""Differs between tokenizers: joins, digits, spaces, and characters of several bytes."""


class VLLMPolicy(HttpPolicy):
    r"""Sample from a vLLM server.

    When it is made it draws one token, so that a server that only seems healthy is found out, through the first of
    these endpoints that returns exact ids; `describe` says which one and why not the ones before:

    1. `/inference/v1/generate` (vLLM's `--enable-scale-out`): ids in and out.
    2. `/v1/completions` with ids as the prompt and `return_token_ids`.
    3. `/v1/chat/completions` with `return_token_ids`: the whole context goes as text, under a template that adds
       nothing (vLLM's `--trust-request-chat-template`). A turn is refused where the server's ids of that text are not
       the context's.

    All sampling parameters are sent, so that the model's own `generation_config` has no say; a turn ends at the chat
    format's stop tokens. (The second and third endpoint add stop tokens of that file, as vLLM does.) Whatever cannot
    be shown to be exact is marked `ids_exact=False`, and `Completion.note` says why.

    Log-probabilities are of the model's own distribution, `raw`, or, under vLLM's `--logprobs-mode processed_logprobs`,
    `processed`: the first token shows which.

    Args:
        target: `URL` or `URL#MODEL`, such as `http://127.0.0.1:8000#Qwen/Qwen3-8B`; the name of a server's
            only model may be left out.
        chat: Must be of the model's own tokenizer; where the server has `/tokenize`, that is tried out.
        concurrency: Most requests in flight.
        timeout_s: Longest wait for one turn, in seconds; a request's deadline may be earlier.

    Raises:
        ConfigError: The address is none, or the server has several models and none is named.
        UnknownName: The server has no such model.
        FingerprintMismatch: The server's tokenizer is another one.
        PolicyError: The server does not answer, or offers no endpoint that returns exact ids.
    """

    def __init__(
        self, target: str, chat: ChatFormat, *, concurrency: PositiveInt = 64, timeout_s: PositiveFloat = 600.0
    ) -> None:
        url, model = split_address(target)
        super().__init__(HttpEngine(url, concurrency=concurrency, timeout_s=timeout_s))
        self._chat = chat
        self.fingerprint = chat.fingerprint
        self._kind: LogprobKind = "raw"
        self._gate = VersionGate()
        self._says_versions = False
        self._weights: ServedWeights | None = None
        self._passed: dict[str, str] = {}
        try:
            self._engine.loop.run(self._probe(model))
        except BaseException:
            self.close()
            raise
        _LOG.info("%s", self.describe())

    @property
    def server(self) -> HttpEngine:
        """The server, for whoever asks it for more than turns."""
        return self._engine

    @property
    def model(self) -> str:
        """The model's name there."""
        return self._model

    @property
    def kind(self) -> LogprobKind:
        """What its log-probabilities are of."""
        return self._kind

    def describe(self) -> str:
        """Say what the server offers, and what is used of it."""
        passed = "".join(f"; not {path}: {why}" for path, why in self._passed.items())
        limit = "unknown" if self.context_limit is None else f"{self.context_limit:,}"
        return (
            f"{self.name} at {self._engine.url}: {self._route.path}, log-probabilities {self._kind}, "
            f"context {limit}{passed}"
        )

    async def draw(self, request: Request, room: int, tell: Tell | None) -> Completion:
        """Make one attempt at a turn.

        Raises:
            Transient: Another attempt may help.
            PolicyError: None will.
        """
        async with self._gate.turn() as version:
            turn = await self._draw(self._route, request, room, tell)
        if version is None or turn.weight_versions or not turn.ids_exact:
            return turn
        return replace(turn, weight_versions=((version, 0, len(turn.ids_T)),))

    def update_weights(self, state: "Mapping[str, torch.Tensor] | WeightDelta", version: str) -> None:
        """Put new weights in the place of the old ones, and drop the server's KV cache; needs the extra `torch`.

        The server must run in its development mode (`VLLM_SERVER_DEV_MODE=1`) and serve a folder that this process sees
        too. `/inference/v1/generate` says which weights drew each token, and goes on with turns in flight; behind the
        other endpoints an update waits until this policy has no turn in flight, and a label is known once there was an
        update. Other writers of the same server's weights are not seen.

        Args:
            state: A state dict with all tensors of the model, or what `weights.delta` found against the weights there.
            version: Their label.

        Raises:
            MissingExtra: torch is not installed.
            PolicyError: The weights are not this model's, or the server takes none, or did not take these; where it can
                go on, then with the old ones.
        """
        from agentgym_tok.policies.http.vllm_weights import ServedWeights  # noqa: PLC0415  # extra `torch`

        if self._weights is None:
            gate = None if self._says_versions else self._gate
            self._weights = ServedWeights(self._engine, self._root, self.name, gate)
        self._weights.update(state, version)

    async def _draw(self, route: "_Route", request: Request, room: int, tell: Tell | None = None) -> Completion:
        body = {"model": self._model, **route.body(self._chat, request, room)}
        where = self._engine.url + route.path
        streamed = tell is not None
        reader = TurnReader(request, room, self._chat, where, self.engine, self._kind, streamed=streamed)
        if tell is None:
            reader.take(await self._engine.ask(route.path, body))
            return reader.completion()
        body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        told = False
        try:
            async with aclosing(self._engine.events(route.path, body)) as events:
                async for event in events:
                    if (piece := reader.add(event)) is not None:
                        told = True
                        await tell(piece)
            return reader.completion()
        except Transient as error:
            if told:  # what was told cannot be taken back, so only the listener may ask again
                raise TransientPolicyError("the stream broke", where=self.name, got=str(error)) from error
            raise

    async def _probe(self, model: str) -> None:
        found = await self._engine.retrying(lambda: self._engine.ask("/v1/models"))
        self._model, self.context_limit, self._root = _choose(found, model, self._engine.url)
        version = await self._optional("/version")
        number = version.get("version", "") if isinstance(version, dict) else ""
        self.name = f"vllm:{self._model}"
        await self._check_tokenizer()
        for route in _ROUTES:
            problem = await self._try(route)
            if problem is None:
                self._route = route
                self.engine = " ".join(["vllm", *number.split(), self._model, route.path])
                return
            self._passed[route.path] = problem
        raise PolicyError(
            "the server offers no endpoint that returns exact ids",
            where=self._engine.url,
            got="; ".join(f"{path}: {why}" for path, why in self._passed.items()),
            expected=" or ".join(route.path for route in _ROUTES),
            fix="start vLLM 0.11 or later with --enable-scale-out, or use openai:URL for evaluation",
        )

    async def _try(self, route: "_Route") -> str | None:
        """Draw the likeliest token of a context of one; returns what keeps the endpoint from being used."""
        request = Request(as_ids(self._chat.stop_ids[:1]), Sampling(top_k=1, max_tokens=1), seed=1)
        try:
            turn = await self._engine.retrying(lambda: self._draw(route, request, 1))
        except (Refused, Garbled) as error:
            return str(error.got)
        except Transient:
            raise  # not the endpoint's fault
        except PolicyError as error:
            return f"{error.what}, {error.got}"
        if not turn.ids_exact or not len(turn.ids_T):
            return turn.note or "no ids"
        self._says_versions = bool(turn.weight_versions)
        # What is left under top-k 1 is certain once it is processed, and never certain before.
        if turn.logprobs_T is None:
            self._kind = "missing"
        elif float(turn.logprobs_T[0]) == 0:
            self._kind = "processed"
        return None

    async def _check_tokenizer(self) -> None:
        body = {"model": self._model, "prompt": _PROBE_TEXT, "add_special_tokens": False}
        found = await self._optional("/tokenize", body)
        theirs = found.get("tokens") if isinstance(found, dict) else None
        ours = self._chat.tokenize(_PROBE_TEXT).tolist()
        if theirs is not None and theirs != ours:
            raise FingerprintMismatch(
                "the server has another tokenizer than the chat format",
                where=self._engine.url,
                got=f"{len(theirs)} ids {theirs[:8]}... for a text",
                expected=f"{len(ours)} ids {ours[:8]}... ({self._chat.reference})",
                fix="use ChatFormat.from_pretrained on the served model's own folder",
            )

    async def _optional(self, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            return await self._engine.retrying(lambda: self._engine.ask(path, body))
        except PolicyError:
            return None  # servers may hide it; nothing rests on it


@dataclass(frozen=True, slots=True)
class _Route:
    """An endpoint, and how it is asked."""

    path: str
    body: Callable[[ChatFormat, Request, int], dict[str, Any]]


def _generate(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    # With 0 some versions and gateways return no log-probabilities (NeMo-RL #3390); the sampled one comes with 1.
    parameters = {**sampling_parameters(chat, request, room), "logprobs": 1}
    return {"token_ids": request.ids_T, "sampling_params": parameters, "output_mode": "tokens"}


_IDS_WANTED = {"return_token_ids": True, "return_tokens_as_token_ids": True}


def _completions(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    return {
        "prompt": request.ids_T,
        **sampling_parameters(chat, request, room),
        "echo": False,
        "logprobs": 1,
        **_IDS_WANTED,
    }


def _chat(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": chat.decode(request.ids_T)}],
        "chat_template": "{{ messages[0]['content'] }}",
        "add_generation_prompt": False,
        "add_special_tokens": False,
        "tool_choice": "none",
        **sampling_parameters(chat, request, room),
        "logprobs": True,
        "top_logprobs": 1,
        **_IDS_WANTED,
    }


_ROUTES = (
    _Route("/inference/v1/generate", _generate),
    _Route("/v1/completions", _completions),
    _Route("/v1/chat/completions", _chat),
)


def _choose(found: Any, model: str, url: str) -> tuple[str, int | None, str]:
    """Return the model's name, the longest context and the folder, from what `/v1/models` answers."""
    listed = found.get("data") if isinstance(found, dict) else None
    cards = {card["id"]: card for card in listed or [] if isinstance(card, dict) and isinstance(card.get("id"), str)}
    if model and model not in cards:
        raise unknown_name("model", model, cards, where=url)
    if not model and len(cards) != 1:
        raise ConfigError(
            "the model must be named",
            where=url,
            got=f"{len(cards)} models: {', '.join(sorted(cards)[:8])}",
            expected="vllm:URL#MODEL",
        )
    name = model or next(iter(cards))
    limit = cards[name].get("max_model_len")
    return name, limit if isinstance(limit, int) else None, str(cards[name].get("root") or "")
