"""Shop by instruction: one purchase step by step, then a careless rule, random clicks and the expert on 30 goals.

python examples/webshop.py
"""

from statistics import fmean

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.envs import TextAction
from agentgym_tok.evaluate import result_of, scores_of
from agentgym_tok.harness import Harness
from agentgym_tok.tokens import Ids

GOALS = 30
CHAT = ChatFormat.builtin()


def make() -> "gym.Env[Ids, Ids]":
    """Make the environment; official files would be source="official" after `agentgym-tok data prepare webshop`."""
    return gym.make(
        "agentgym_tok/WebShop-v0",
        chat=CHAT,
        split="eval",  # of preset="canonical": goals 0-499; the others are for training
        goals="synthetic",  # or "human"
        observation="text",  # or "text_rich"
        prompting="transcript",  # or "step" (verl-agent, SDAR), "react"
        max_steps=15,
    )


env = TextAction(make())
_, info = env.reset(options={"task": 0})
print(info["goal"])
over = False
while not over:
    command = env.unwrapped.engine.expert_command()  # type: ignore[attr-defined]
    _, reward, terminated, truncated, info = env.step(command)
    print(f"  {command:45} score {info['score']:.2f}  {info['text'].partition(info['goal'])[2][:60]!r}")
    over = terminated or truncated

scores = []
for task in range(GOALS):
    _, info = env.reset(options={"task": task})
    info = env.step(f"search[{info['goal']}]")[4]
    hits = [name for name in info["available_actions"]["clickables"] if name not in {"back to search", "next >"}]
    env.step(f"click[{hits[0]}]")
    scores.append(env.step("click[buy now]")[4]["score"])
print(f"buying the first hit as it comes: score {100 * fmean(scores):.1f}, success {scores.count(1.0)} of {GOALS}")

for policy in ("random", "expert"):
    episodes = Harness(policy, CHAT).run_many(make, tasks=range(GOALS))
    (line,) = scores_of([result_of(episode, metrics=["score"]) for episode in episodes])
    mean = line.metrics["score"]
    print(
        f"{policy} on WebShop-synth eval: score {100 * mean.mean:.1f} ({100 * mean.low:.1f} to {100 * mean.high:.1f}), "
        f"success {100 * line.success:.1f} % ({100 * line.low:.1f} to {100 * line.high:.1f}), {line.steps:.1f} steps"
    )
