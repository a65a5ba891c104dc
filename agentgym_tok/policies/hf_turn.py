"""How `hf:` draws the tokens of a turn, in torch."""

import torch

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import Listen
from agentgym_tok.policies.turn import Turn, no_numbers
from agentgym_tok.types import Request, Sampling

__all__ = ["DrawnTurn", "check_logits", "processed"]


class DrawnTurn(Turn):
    """Draw the turn of one request; see `Turn` for the arguments."""

    def __init__(self, request: Request, chat: ChatFormat, room: int, listen: Listen | None = None) -> None:
        super().__init__(request, chat, room, listen)
        self._generator = torch.Generator().manual_seed(request.seed)

    def draw(self, logits_V: torch.Tensor, version: str) -> int:
        """Draw the next id."""
        if not self.open:
            return 0
        try:
            check_logits(logits_V, f"token {len(self)} of a turn")
        except PolicyError as error:
            self.fail(error)
            return 0
        logprobs_V = processed(logits_V.cpu(), self.sampling)
        if self.sampling.temperature == 0:
            index = int(logprobs_V.argmax())
        else:
            index = int(torch.multinomial(logprobs_V.exp(), 1, generator=self._generator))
        self.add(index, float(logprobs_V[index]), version)
        return index


def processed(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the log-probabilities that a token is drawn from.

    Args:
        logits: float32 [..., V].
        sampling: Temperature first, then top-k, then top-p over what is left, as engines do; 0 leaves the model's own.

    Returns:
        float32 [..., V], nats; -inf where a token cannot be drawn.
    """
    if sampling.temperature == 0:
        return torch.log_softmax(logits, -1)
    scaled = logits / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        floor = torch.topk(scaled, sampling.top_k).values[..., -1:]
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    if sampling.top_p < 1:
        ordered, places = torch.sort(scaled, descending=True)
        before = torch.softmax(ordered, -1).cumsum(-1) - torch.softmax(ordered, -1)
        dropped = torch.zeros_like(scaled, dtype=torch.bool).scatter(-1, places, before >= sampling.top_p)
        scaled = scaled.masked_fill(dropped, -torch.inf)
    return torch.log_softmax(scaled, -1)


def check_logits(logits: torch.Tensor, where: str) -> None:
    """Refuse logits that are infinite or no numbers."""
    if not bool(torch.isfinite(logits).all()):
        raise no_numbers(where)
