"""How vLLM is told to draw: every parameter that it would otherwise take from somewhere else."""

from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.types import Request

__all__ = ["sampling_parameters"]


def sampling_parameters(chat: ChatFormat, request: Request, room: int) -> dict[str, Any]:
    """Return the parameters by the names that vLLM's endpoints and its `SamplingParams` share.

    Args:
        chat: Knows the stop tokens.
        request: What is asked.
        room: Most tokens to draw.
    """
    sampling = request.sampling
    return {
        "n": 1,
        "max_tokens": room,
        "min_tokens": 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,  # the value for "all" that every version knows
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": request.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": list(chat.stop_ids),
        "ignore_eos": True,  # the model's own end is no stop token unless the chat format says so
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    }
