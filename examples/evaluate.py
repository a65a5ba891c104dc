"""Evaluate policies from Python, with intervals; `agentgym-tok eval alfworld` does the same from a shell.

python examples/evaluate.py
"""

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.evaluate import result_of, scores_of
from agentgym_tok.harness import Harness

EPISODES = 30
POLICIES = ("expert", "random")  # also "hf:PATH", "python:module:function", or any callable
CHAT = ChatFormat.builtin()

for policy in POLICIES:
    harness = Harness(policy, CHAT)
    episodes = harness.run_many(
        lambda: gym.make("agentgym_tok/ALFWorld-v0", chat=CHAT, split="valid_unseen"), tasks=range(EPISODES)
    )
    print(f"{policy} on ALFWorld-synth valid_unseen")
    for score in scores_of([result_of(episode) for episode in episodes]):
        interval = f"{100 * score.low:5.1f} to {100 * score.high:5.1f}"
        print(f"  {score.label:6} n {score.n:3}  {100 * score.success:5.1f} %  ({interval})  {score.steps:4.1f} steps")
