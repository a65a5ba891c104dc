"""Questions that need a search engine: one episode of Search-R1's protocol, then scores by kind of question.

python examples/searchqa.py
"""

from typing import Any

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.evaluate import result_of, scores_of
from agentgym_tok.harness import Harness

CHAT = ChatFormat.builtin()
OPTIONS: dict[str, Any] = {
    "split": "test",  # of the generated world; source="official", data=..., corpus=... for your own files
    "prompting": "search_r1",  # or "step" (verl-agent, SDAR), "transcript" (tool calls), "react"
    "retriever": "bm25",  # or "sqlite", "dense", "http", "wikipedia", "hybrid", or an open one
    "topk": 3,
    "reward": "em",  # or "subem", "f1", "format"
}


def main() -> None:
    """Play one question, then fifty."""
    env = gym.make("agentgym_tok/SearchQA-v0", chat=CHAT, **OPTIONS)
    hints = env.get_wrapper_attr("hints")
    _, info = env.reset(options={"task": 1})
    print(info["text"])
    terminated = truncated = False
    while not (terminated or truncated):
        turn_T = CHAT.encode_turn(hints()["expert"])  # your model samples these ids, and stops at </search>
        _, reward, terminated, truncated, info = env.step(turn_T)
        found = ", ".join(name for name, _ in info["passages"])
        print(f"  {info['action_text']:40} reward {reward:g}  {found}")

    episodes = Harness("expert", CHAT).run_many(
        lambda: gym.make("agentgym_tok/SearchQA-v0", chat=CHAT, **OPTIONS), tasks=range(50)
    )
    results = [result_of(episode, SearchQAEnv.labels, SearchQAEnv.metrics) for episode in episodes]
    for score in scores_of(results, SearchQAEnv.labels):
        em, f1 = score.metrics["em"], score.metrics["f1"]
        interval = f"({100 * f1.low:5.1f} to {100 * f1.high:5.1f})"
        print(f"{score.label:8} n {score.n:3}  EM {100 * em.mean:5.1f}  F1 {100 * f1.mean:5.1f}  {interval}")


if __name__ == "__main__":
    main()
