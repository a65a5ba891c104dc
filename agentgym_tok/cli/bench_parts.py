"""What `agentgym-tok bench all` measures: each benchmark with its options, its peers, and what it needs to be there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["PARTS", "Part", "Peer"]

Need = Literal["stock", "litellm", "torch", "documents"]


@dataclass(frozen=True, slots=True)
class Peer:
    """Name two figures of one run that say the same of two programs.

    Args:
        ours: Name of ours.
        theirs: Name of the other one's.
        whose: The other program.
        less_is_better: They are times or sizes, and no rates.
    """

    ours: str
    theirs: str
    whose: str
    less_is_better: bool = False

    def ratio(self, figures: Mapping[str, float]) -> float | None:
        """Return how many times better ours is; None where one of them was not measured."""
        ours, theirs = figures.get(self.ours), figures.get(self.theirs)
        if not ours or not theirs:
            return None
        return theirs / ours if self.less_is_better else ours / theirs


@dataclass(frozen=True, slots=True)
class Part:
    """Hold one benchmark.

    Args:
        name: How `--only` calls it.
        command: Of `agentgym-tok`, with the options of a full run; `{NEED}` stands for what a need is met by.
        quick: Options that make it a matter of seconds, for trying out.
        needs: What must be there.
        peers: What stands beside it.
        python: The option that names another interpreter for it, which has the peer.
        packages: The option that names a folder of packages for it, which holds the peer.
    """

    name: str
    command: Sequence[str]
    quick: Sequence[str] = ()
    needs: Sequence[Need] = ()
    peers: Sequence[Peer] = ()
    python: Literal["stock"] | None = None
    packages: Literal["trl"] | None = None


PARTS: Sequence[Part] = (
    Part("alfworld", ("bench", "alfworld"), ("--seconds", "0.1")),
    Part(
        "alfworld+stock",
        ("bench", "alfworld", "--against", "textworld"),
        ("--seconds", "0.1"),
        needs=("stock",),
        python="stock",
        peers=(
            Peer("engine steps/s", "textworld steps/s", "TextWorld"),
            Peer("engine reset, us", "textworld reset, us", "TextWorld", less_is_better=True),
        ),
    ),
    Part("webshop", ("bench", "webshop", "--products", "1000000"), ("--products", "2000")),
    Part(
        "searchqa",
        ("bench", "searchqa", "--retriever", "bm25", "--retriever", "sqlite"),
        ("--seconds", "0.1"),
        peers=(Peer("bm25: queries/s", "sqlite: queries/s", "SQLite's full-text search"),),
    ),
    Part(
        "searchqa+files",
        ("bench", "searchqa", "--retriever", "bm25", "--retriever", "sqlite", "{documents}"),
        ("--seconds", "0.1"),
        needs=("documents",),
        peers=(Peer("bm25: queries/s", "sqlite: queries/s", "SQLite's full-text search"),),
    ),
    Part(
        "chat",
        ("bench", "chat"),
        ("--turns", "8", "--tokens", "2000"),
        peers=(
            Peer("CPU ms a turn, bridges", "CPU ms a turn, renderings", "rendering anew", less_is_better=True),
            Peer("tokens encoded by bridges", "tokens encoded by renderings", "rendering anew", less_is_better=True),
        ),
    ),
    Part("trace", ("bench", "trace"), ("--conversations", "1", "--turns", "4")),
    Part("harness", ("bench", "harness"), ("--episodes", "40")),
    Part("scaling", ("bench", "scaling"), ("--episodes", "8", "--turns", "2", "--turns", "4", "--words", "5")),
    Part(
        "policies",
        ("bench", "policies"),
        ("--conversations", "2", "--turns", "2"),
        needs=("torch",),
        peers=(Peer("numpy: ids per CPU second", "hf: ids per CPU second", "transformers"),),
    ),
    Part(
        "learner",
        ("bench", "learner"),
        ("--group", "2", "--prompt", "60", "--new", "30", "--updates", "1"),
        needs=("torch",),
        packages="trl",
        peers=(
            Peer("tokens/s, packed", "tokens/s, padded", "padded rows"),
            Peer("tokens/s, packed", "tokens/s, trl", "TRL's GRPOTrainer"),
        ),
    ),
    Part("weights", ("bench", "weights"), ("--steps", "1", "--rows", "1", "--length", "32"), needs=("torch",)),
    Part("proxy", ("bench", "proxy"), ("--seconds", "0.3")),
    Part(
        "proxy+litellm",
        ("bench", "proxy", "--litellm", "{litellm}"),
        ("--seconds", "0.3"),
        needs=("litellm",),
        peers=(
            Peer("ours: requests/s", "litellm: requests/s", "LiteLLM"),
            Peer("ours: requests/s, streamed", "litellm: requests/s, streamed", "LiteLLM"),
        ),
    ),
)
"""In the order of the table. `NAME+PEER` takes the place of `NAME` where its needs are met."""
