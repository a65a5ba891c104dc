"""How llama.cpp is asked for the next few tokens of a turn, and what it answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentgym_tok.errors import PolicyError, TransientPolicyError
from agentgym_tok.types import Sampling

__all__ = ["SMALLEST", "Candidate", "Piece", "question", "read_piece"]

SMALLEST = -87.0
"""llama.cpp takes logarithms of float32 probabilities: about here they stop being normal numbers, and exact."""

_NEUTRAL = {
    "min_p": 0.0,
    "min_keep": 0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "mirostat": 0,
    "dynatemp_range": 0.0,
    "adaptive_target": -1.0,
    "ignore_eos": False,
    "grammar": "",
    "backend_sampling": False,
}
"""What a GGUF file or llama.cpp itself would set to something else."""

_IN_FORCE = ("seed", "samplers", "temperature", "top_k", "top_p", *_NEUTRAL)
"""What decides on a draw; each answer says what it was drawn with."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Candidate(_Part):
    """Hold an id and its log-probability under the model's own distribution."""

    id: int
    logprob: float


class _Probability(Candidate):
    top_logprobs: list[Candidate]


class _Timings(_Part):
    prompt_n: int


class _Reply(_Part):
    tokens: list[int]
    tokens_evaluated: int
    truncated: bool
    stop_type: str
    prompt: str
    timings: _Timings
    generation_settings: dict[str, Any]
    completion_probabilities: list[_Probability] = []


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold what one question was answered.

    Args:
        ids: What was drawn.
        logprobs: Of each id, in nats; None where the answer does not say.
        candidates: The likeliest ids in place of the first one.
        prompt: The context as text, control tokens spelled out.
        computed: Places of the forward passes.
    """

    ids: list[int]
    logprobs: list[float | None]
    candidates: list[Candidate]
    prompt: str
    computed: int


def question(ids: list[int], sampling: Sampling, count: int, seed: int, *, candidates: int = 1) -> dict[str, Any]:
    """Return what `xllamacpp.Server.handle_completions` is asked.

    Args:
        ids: The context.
        sampling: Temperature, then top-k, then top-p; nothing else has a say.
        count: Most ids to draw.
        seed: 0 <= seed < 2**32 - 1, which would be a random one.
        candidates: How many of the likeliest ids to return for each that is drawn.
    """
    return {
        "prompt": ids,
        "n_predict": count,
        "seed": seed,
        "samplers": ["temperature", "top_k", "top_p"],
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        **_NEUTRAL,
        "n_probs": candidates,
        "post_sampling_probs": False,  # so that they are of the model's own distribution
        "cache_prompt": True,
        "stream": False,
        "return_tokens": True,
        "verbose": True,  # the only way to get ids out of this call
    }


def read_piece(answer: dict[str, Any], asked: dict[str, Any], where: str) -> Piece:
    """Read an answer.

    Raises:
        PolicyError: It is an error (`transient` unless it refuses the question), is none of this question, or was drawn
            in another way than was asked for.
    """
    failed = answer.get("error", answer)  # it, or its binding, says what went wrong
    if "message" in failed:
        kind = PolicyError if failed.get("code") == 400 else TransientPolicyError
        raise kind("llama.cpp refused or failed", where=where, got=str(failed["message"])[:300])
    try:
        reply = _Reply.model_validate(answer.get("__verbose"))
    except ValidationError as error:
        got = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:2])
        raise PolicyError("llama.cpp answered in another form", where=where, got=got) from None
    sent, drawn = len(asked["prompt"]), len(reply.tokens)
    if reply.tokens_evaluated != sent:
        got = f"{reply.tokens_evaluated} ids"
        raise PolicyError("llama.cpp read other ids than were sent", where=where, got=got, expected=f"{sent} ids")
    if not drawn or drawn > asked["n_predict"] or (drawn < asked["n_predict"] and reply.stop_type != "eos"):
        got, expected = f"{drawn} ids, stop type {reply.stop_type!r}", f"{asked['n_predict']} ids, or an end of text"
        raise PolicyError("llama.cpp drew another number of ids", where=where, got=got, expected=expected)
    for name in _IN_FORCE:
        found, expected = reply.generation_settings.get(name), asked[name]
        if not _equal(found, expected):
            what = "llama.cpp drew with another parameter"
            raise PolicyError(what, where=f"{where}, {name}", got=found, expected=expected)
    known = reply.completion_probabilities
    try:
        logprobs = _placed(reply.tokens, known)
    except ValueError:
        got = f"{[one.id for one in known]} for {reply.tokens}"
        raise PolicyError("the log-probabilities are of other ids", where=where, got=got) from None
    candidates = known[0].top_logprobs if known else []
    return Piece(reply.tokens, logprobs, candidates, reply.prompt, reply.timings.prompt_n + drawn - 1)


def _equal(found: Any, asked: Any) -> bool:
    if isinstance(asked, float) and isinstance(found, float | int):
        return math.isclose(found, asked, rel_tol=1e-6)  # it keeps float32
    return bool(found == asked)


def _placed(ids: list[int], known: Sequence[_Probability]) -> list[float | None]:
    """Give each id its log-probability.

    llama.cpp leaves out those of ids after which the turn's text ends in a part of a character. Where the rest fits the
    ids in more than one way, what is in doubt is left out too.

    Raises:
        ValueError: They do not fit.
    """
    names = [one.id for one in known]
    first = _match(ids, names)
    last = [len(ids) - 1 - place for place in reversed(_match(ids[::-1], names[::-1]))]
    logprobs: list[float | None] = [None] * len(ids)
    for place, other, one in zip(first, last, known, strict=True):
        if place == other:
            logprobs[place] = min(0.0, one.logprob)
    return logprobs


def _match(ids: list[int], names: list[int]) -> list[int]:
    """Return the first place of each name behind that of the name before."""
    places: list[int] = []
    for name in names:
        places.append(ids.index(name, places[-1] + 1 if places else 0))
    return places
