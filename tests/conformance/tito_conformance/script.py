"""What a case is made of: what the agent says, what the engine samples, and what must follow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Case", "Edit", "Fault", "JsonMap", "Piece", "Reply", "Step", "Text", "Verdict"]

JsonMap: TypeAlias = Mapping[str, Any]
Piece: TypeAlias = str | bytes
Edit: TypeAlias = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Changes an agent's history; it gets a copy."""
Verdict: TypeAlias = Literal["prevented", "reported", "failed", "not applicable"]

Fault: TypeAlias = Literal[
    "no_ids",  # the engine returns text and no ids
    "sentinel",  # one log-probability is -9999.0
    "extra_logprob",  # one log-probability more than ids
    "first_ids_only",  # a stream tells ids in its first piece only
    "control_ids_lost",  # a stream with tools leaves out the ids of control tokens
    "prompt_tail",  # the sampled ids begin with the last ids of the prompt
    "prompt_encoded_again",  # the engine decodes the prompt's ids and encodes the text
    "stop_id_trimmed",  # the stop token is taken from the ids and stays in the log-probabilities
]


class Text(str):
    """Mark text of a message inside an expected prompt: it holds no control token, whatever it spells."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """Hold what the engine samples.

    Args:
        pieces: Encoded one by one, so that the ids need not be what encoding the text gives; bytes are byte tokens.
        finish: What ends the turn. After `length` no stop token stands among the ids.
        stop: The stop string that ended it; engines cut it from the text and keep its ids.
        fault: What the engine does wrong with this reply.
    """

    pieces: tuple[Piece, ...]
    finish: Literal["stop", "length"] = "stop"
    stop: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one request of the agent, and what is expected of it.

    Args:
        new: The messages that it adds. Tool results have no call id: the agent takes those that the gateway told.
        reply: What the engine samples.
        tails: What may stand behind the last turn's ids in the prompt, and nothing else; several where more than one
            is right. Empty for the first step and after an edit.
        opening: The whole prompt of a first step; None expects what the template renders.
        edit: Changes the agent's history before the request.
        tools: Other tools than the case's from here on.
        options: More fields of the request (`stop`, `stream`).
        edited: The request no longer goes on from what went before, so that a gateway must say so.
        shows: Texts that the prompt must hold after an edit.
        hides: Texts that it must not hold any more.
    """

    new: tuple[JsonMap, ...]
    reply: Reply
    tails: tuple[tuple[str, ...], ...] = ()
    opening: tuple[str, ...] | None = None
    edit: Edit | None = None
    tools: Sequence[JsonMap] | None = None
    options: JsonMap = field(default_factory=dict)
    edited: bool = False
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """Hold one way in which ids drift.

    Args:
        number: `1` to `36`, `P1`... (pairs of text), `J1`... (joins) or `X1`... (more).
        title: What drifts, in a line.
        source: Where it was seen.
        model: The model that it runs on.
        classes: Names under which it may be reported, the fittest first.
        steps: What happens.
        tools: Schemas of the tools.
        best: The best that a gateway can do. `reported` where the client or the engine broke the history itself.
        naive: What rendering the conversation from text makes of it.
        audited: The library's audit finds it in the record. False where a text pipeline has the very same ids, or where
            ids cannot show it.
        real: Real tokenizers on which the same case holds.
    """

    number: str
    title: str
    source: str
    model: str
    classes: tuple[str, ...]
    steps: tuple[Step, ...]
    tools: tuple[JsonMap, ...] = ()
    best: Verdict = "prevented"
    naive: Verdict = "failed"
    audited: bool = True
    real: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Number and title as one word, for tests and files."""
        words = "".join(char if char.isalnum() and char.isascii() else " " for char in self.title.lower()).split()
        number = self.number.zfill(2) if self.number.isdigit() else self.number
        return "-".join([number, *words])
