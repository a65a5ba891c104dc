"""`agentgym-tok bench chat`: what the contexts of a long conversation cost, beside rendering it anew each turn."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from pydantic import Field

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.cli.figures import report
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.drift import audit
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Message

__all__ = ["Options", "run"]

_WORDS = (
    "drawer",
    "cabinet",
    "fridge",
    "apple",
    "take",
    "open",
    "heat",
    "from",
    "with",
    "shelf",
    "the",
    "under",
    "three",
)


class Options(Config):
    """Build the contexts of one long conversation twice: by bridges from the sampled ids, and by rendering all of it.

    Tokens that were encoded are counted, and CPU time is measured, in the same run. Then its messages are audited: what
    a text pipeline would have made of them.
    """

    chat: str = Field(default="builtin", description="builtin, or a model's folder or id (extra hf)")
    turns: int = Field(default=128, ge=2, description="turns of the conversation")
    tokens: int = Field(default=69_000, ge=1000, description="length of the last context")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0."""
    chat = chat_format(options.chat)
    figures = measure(chat, options.turns, options.tokens)
    report(f"{Path(options.chat).name}, {options.turns} turns", figures, options, options.out)
    return 0


def measure(chat: ChatFormat, turns: int, tokens: int) -> dict[str, float]:
    """Return the figures of both ways.

    Args:
        chat: The format.
        turns: Turns of the conversation.
        tokens: Tokens of the last context, about.
    """
    draw = np.random.default_rng(0)
    each = tokens // turns
    rounds = [(_text(draw, each * 15 // 100), _text(draw, each * 85 // 100)) for _ in range(turns)]
    sampled = [[*chat.encode(said).tolist(), *chat.stop_ids[:1]] for said, _ in rounds]
    history = [Message("system", "Be brief."), Message("user", "Begin.")]
    context = chat.open(history)
    with _counted() as count:
        start = time.process_time()
        for turn, (_, answer) in zip(sampled, rounds, strict=True):
            bridged = chat.bridge(context.sampled(turn), [Message("user", answer)])
            if isinstance(bridged, Refusal):
                raise ChatError("the format does not bridge a user's message", where=chat.reference, got=bridged.reason)
            context = bridged
            _ = context.ids
        bridging = time.process_time() - start
        bridge_tokens, bridge_encoding = count.take()
        start = time.process_time()
        for said, answer in rounds:
            history += [Message("assistant", said), Message("user", answer)]
            _ = chat.open(history).ids
        rendering = time.process_time() - start
        render_tokens, _ = count.take()
    start = time.process_time()
    audit(chat, history)
    auditing = time.process_time() - start
    return {
        "tokens of the last context": len(context),
        "tokens encoded by bridges": bridge_tokens,
        "tokens encoded by renderings": render_tokens,
        "CPU ms a turn, bridges": 1e3 * bridging / turns,
        "CPU ms a turn, bridges without encoding": 1e3 * (bridging - bridge_encoding) / turns,
        "CPU ms a turn, renderings": 1e3 * rendering / turns,
        "bridges, % of renderings": 100 * bridging / rendering,
        "drift audit of the messages, CPU s": auditing,
    }


@dataclass(slots=True)
class _Count:
    """Count encoded tokens, and the seconds it takes."""

    tokens: int = 0
    seconds: float = 0.0

    def take(self) -> tuple[int, float]:
        taken = self.tokens, self.seconds
        self.tokens, self.seconds = 0, 0.0
        return taken


@contextmanager
def _counted() -> Iterator[_Count]:
    encode, count = Tokenizer.encode, _Count()

    def counted(tokenizer: Tokenizer, text: str, cut: str = "") -> Ids:
        start = time.process_time()
        ids_T = encode(tokenizer, text, cut)
        count.seconds += time.process_time() - start
        count.tokens += len(ids_T)
        return ids_T

    with mock.patch.object(Tokenizer, "encode", counted):
        yield count


def _text(draw: np.random.Generator, words: int) -> str:
    return " ".join(_WORDS[index] for index in draw.integers(len(_WORDS), size=max(1, words)))
