"""A policy of your own: a function from ids to ids.

    python examples/custom_policy.py

The same function works on the command line: agentgym-tok eval alfworld --policy python:my_module:walker
"""

import re

import gymnasium as gym
import numpy as np

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Harness
from agentgym_tok.types import Request

CHAT = ChatFormat.builtin()


def walker(ids_T: np.ndarray, request: Request) -> tuple[np.ndarray, np.ndarray]:
    """Go to a random place that the first observation names; return ids and their log-probabilities."""
    first = CHAT.decode(ids_T).split("you see ")[1].split(".")[0]
    places = re.findall(r"a (\w+ \d+)", first)
    draw = np.random.default_rng(request.seed)  # the request's own seed: the same ids in any batch, in any process
    turn_T = CHAT.encode_turn(f"<action>go to {places[draw.integers(len(places))]}</action>")
    return turn_T, np.full(len(turn_T), -np.log(len(places)) / len(turn_T), np.float32)


def main() -> None:
    """Play four rollouts of each of three tasks, every group from clones of one start."""
    harness = Harness(walker, CHAT)
    episodes = harness.run_many(
        lambda: gym.make("agentgym_tok/ALFWorld-v0", chat=CHAT, split="valid_seen", max_steps=6),
        tasks=[0, 1, 2],
        group_size=4,
    )
    for episode in episodes:
        route = " > ".join(turn.action_text.removeprefix("go to ") for turn in episode.turns)
        print(f"{episode.group_id[:6]}.{episode.head.replica}  return {episode.return_:g}  {route}")


if __name__ == "__main__":
    main()
