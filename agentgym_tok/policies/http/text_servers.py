"""How servers other than vLLM are asked for a turn, and what they answer: llama.cpp, Ollama, OpenAI's completions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import end_doubt, text_end
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.http.failures import Garbled
from agentgym_tok.policies.http.reply import ReplyPart, read_reply
from agentgym_tok.policies.http.text_turn import encoded_turn
from agentgym_tok.tokens import as_ids, as_logprobs
from agentgym_tok.types import Completion, FinishReason, Request

__all__ = ["ROUTES", "Asked", "Route"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader of answers needs to know of the question."""

    chat: ChatFormat
    request: Request
    where: str
    engine: str

    def turn(self, text: str, finish: str | None) -> Completion:
        """Return the turn of a text."""
        if finish not in {"stop", "length"}:
            raise PolicyError("the engine ended the turn", where=self.where, got=f"finish reason {finish!r}")
        stop = self.request.sampling.stop
        return Completion(
            encoded_turn(self.chat, text, stopped=finish == "stop", stop=stop),
            finish_reason="length" if finish == "length" and text_end(text, stop) is None else "stop",
            ids_exact=False,
            engine=self.engine,
            sampling=self.request.sampling,
            note="ids encoded from text",
        )


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint: how it is asked, and how its answer is read."""

    name: str
    path: str
    body: Callable[[ChatFormat, Request, int], dict[str, Any]]
    read: Callable[[Any, Asked], Completion]
    exact: bool = False


def _prompt(chat: ChatFormat, request: Request) -> str:
    """Return the context as text, without a BOS: servers put one before every text."""
    ids_T = request.ids_T
    return chat.decode(ids_T[1:] if len(ids_T) and int(ids_T[0]) == chat.bos_id else ids_T)


def _stops(chat: ChatFormat) -> list[str]:
    """Return the stop tokens as text.

    The stop strings of a request are not sent: a server cuts one off and does not say which it was. The turn's text is
    read up to the end of its first one instead, and what was drawn behind it is lost time.
    """
    return [chat.token_text(index) for index in chat.stop_ids[:4]]  # OpenAI takes no more


# ---- llama.cpp


class _Probability(ReplyPart):
    id: int
    logprob: float


class _LlamaCpp(ReplyPart):
    tokens: list[int]
    stop_type: str
    tokens_evaluated: int
    truncated: bool = False
    completion_probabilities: list[_Probability] | None = None


_LLAMA_CPP_FINISH: dict[str, FinishReason] = {"eos": "stop", "word": "stop", "limit": "length"}


def _ask_llama_cpp(_: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "prompt": request.ids_T.tolist(),
        "n_predict": room,
        "return_tokens": True,
        "n_probs": 1,
        "post_sampling_probs": False,
        "cache_prompt": True,
        "seed": request.seed % 2**32,
        # Temperature comes first here, as in the other engines; the server's own chain has it last, and more in it.
        "samplers": ["temperature", "top_k", "top_p"],
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "stop": list(sampling.stop),
        **_NEUTRAL,
    }


_NEUTRAL = {
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "mirostat": 0,
    "dynatemp_range": 0.0,
}


def _read_llama_cpp(answer: Any, asked: Asked) -> Completion:
    reply, sent = read_reply(_LlamaCpp, answer, asked.where), len(asked.request.ids_T)
    if reply.tokens_evaluated != sent or reply.truncated:
        got = f"{reply.tokens_evaluated} ids{', cut' if reply.truncated else ''}"
        raise PolicyError(
            "the engine read other ids than were sent", where=asked.where, got=got, expected=f"{sent} ids"
        )
    ids_T = as_ids(reply.tokens, where=f"ids of {asked.where}", vocab_size=asked.chat.vocab_size)
    finish = _LLAMA_CPP_FINISH.get(reply.stop_type)
    if finish is None:
        raise PolicyError("the engine ended the turn", where=asked.where, got=f"stop type {reply.stop_type!r}")
    probabilities = reply.completion_probabilities or []
    # Of a turn that a stop string ended, the server leaves out those of the string.
    agree = [one.id for one in probabilities] == reply.tokens
    doubt = end_doubt(asked.chat, ids_T, asked.request.sampling.stop, stopped=finish == "stop")
    return Completion(
        ids_T,
        as_logprobs([min(0.0, one.logprob) for one in probabilities], len(ids_T)) if agree else None,
        finish_reason=finish,
        ids_exact=not doubt,
        logprobs="raw" if agree else "missing",
        engine=asked.engine,
        sampling=asked.request.sampling,
        note=doubt,
    )


# ---- Ollama


class _Ollama(ReplyPart):
    response: str
    done_reason: str | None = None


def _ask_ollama(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    sampling = request.sampling
    options = {
        "num_predict": room,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": request.seed % 2**31,
        "stop": _stops(chat),
        **_NEUTRAL,
    }
    return {"prompt": _prompt(chat, request), "raw": True, "stream": False, "options": options}


def _read_ollama(answer: Any, asked: Asked) -> Completion:
    reply = read_reply(_Ollama, answer, asked.where)
    return asked.turn(reply.response, reply.done_reason)


# ---- everybody else


class _Choice(ReplyPart):
    text: str
    finish_reason: str | None = None


class _Completions(ReplyPart):
    choices: list[_Choice]


def _ask_plainly(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    sampling = request.sampling
    if sampling.top_k:
        got, fix = f"top_k={sampling.top_k}", "leave it at 0, or serve the model with vLLM or llama.cpp"
        raise PolicyError("this server cannot be told to keep the likeliest tokens", where="sampling", got=got, fix=fix)
    return {
        "prompt": _prompt(chat, request),
        "max_tokens": room,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed % 2**31,
        "stop": _stops(chat),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


def _ask_fully(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    without = request.sampling.model_copy(update={"top_k": 0})
    plain = _ask_plainly(chat, Request(request.ids_T, without, request.seed), room)
    return plain | {"top_k": request.sampling.top_k, "min_p": 0.0, "repeat_penalty": 1.0}


def _read_completions(answer: Any, asked: Asked) -> Completion:
    reply = read_reply(_Completions, answer, asked.where)
    if len(reply.choices) != 1:
        raise Garbled("the answer holds no turn", where=asked.where, got=f"{len(reply.choices)} choices")
    return asked.turn(reply.choices[0].text, reply.choices[0].finish_reason)


ROUTES = (
    Route("llama.cpp /completion", "/completion", _ask_llama_cpp, _read_llama_cpp, exact=True),
    Route("Ollama /api/generate", "/api/generate", _ask_ollama, _read_ollama),
    Route("/v1/completions", "/v1/completions", _ask_fully, _read_completions),
    Route("/v1/completions of OpenAI", "/v1/completions", _ask_plainly, _read_completions),
)
