"""A policy of your own: a function from ids to ids, which samples, and says how likely each id was.

    python examples/custom_policy.py

The same function works on the command line: agentgym-tok eval alfworld --policy python:my_module:policy
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

import gymnasium as gym
import numpy as np

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Harness
from agentgym_tok.trace import account, rows
from agentgym_tok.types import Request

CHAT = ChatFormat.builtin()


class NGrams:
    """Draw each id by the three before it, as often as it stood behind them in some turns."""

    def __init__(self, turns: Iterable[np.ndarray]) -> None:
        self.counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for turn_T in turns:
            ids = [-1, -1, -1, *turn_T.tolist()]
            for place in range(3, len(ids)):
                self.counts[tuple(ids[place - 3 : place])][ids[place]] += 1

    def __call__(self, _: np.ndarray, request: Request) -> tuple[list[int], list[float]]:
        """Return a sampled turn, and how likely the model finds each id; so small a one does not read its context."""
        draw = np.random.default_rng(request.seed)  # the request's own: the same ids in any batch, in any process
        ids: list[int] = [-1, -1, -1]
        logprobs: list[float] = []
        while ids[-1] not in CHAT.stop_ids and len(logprobs) < request.sampling.max_tokens:
            counts = self.counts[tuple(ids[-3:])]
            chances = np.array(list(counts.values())) / counts.total()
            chosen = draw.choice(len(chances), p=chances)  # at temperature 1, as whoever returns a pair must
            ids.append(list(counts)[chosen])
            logprobs.append(float(np.log(chances[chosen])))
        return ids[3:], logprobs


def world() -> gym.Env:
    """Make the world, with short episodes."""
    return gym.make("agentgym_tok/ALFWorld-v0", chat=CHAT, split="valid_seen", max_steps=6)


def main() -> None:
    """Learn to speak from an expert, then play four rollouts of each of three tasks, from clones of one start."""
    shown = Harness("expert", CHAT).run_many(world, tasks=range(20))
    policy = NGrams(turn.completion.ids_T for episode in shown for turn in episode.turns)

    episodes = Harness(policy, CHAT).run_many(world, tasks=[0, 1, 2], group_size=4)
    for episode in episodes:
        said = " > ".join(turn.action_text for turn in episode.turns)
        print(f"{episode.group_id[:6]}.{episode.head.replica}  return {episode.return_:g}  {said}")

    row = rows(episodes[0])[0]
    likelihood = row.logprobs_T[row.mask_T].sum()
    print(f"the first row: {len(row.ids_T)} ids, {row.mask_T.sum()} of them sampled, log-likelihood {likelihood:.2f}")
    counts = account(episodes)
    print(f"sampled {counts.sampled} = trained {counts.trained} + masked {sum(counts.masked.values())}")


if __name__ == "__main__":
    main()
