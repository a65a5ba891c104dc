"""Rollouts of a model that a vLLM server holds, logged, proved and counted (extras `engines` and `hf`).

python examples/vllm_run.py                                                  # says how to start a server
python examples/vllm_run.py http://127.0.0.1:8000 --chat Qwen/Qwen3-0.6B
"""

import argparse
import tempfile
import time
from pathlib import Path

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Budget, Harness, Observer, Retries, SummaryCompaction
from agentgym_tok.trace import TraceStore, account, verify
from agentgym_tok.types import Sampling

HELP = """No server is named, so nothing was played. Start one in an environment of its own, then name it:

    pip install vllm
    vllm serve Qwen/Qwen3-0.6B --enable-scale-out     # the endpoint that takes ids and returns ids

    pip install "agentgym-tok[engines,hf]"
    python examples/vllm_run.py http://127.0.0.1:8000 --chat Qwen/Qwen3-0.6B
"""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Rollouts of a model that a vLLM server holds.")
    parser.add_argument("url", nargs="?", help="the server, as URL or URL#MODEL; without it, how to start one")
    parser.add_argument(
        "--chat", default="Qwen/Qwen3-0.6B", help="tokenizer and template of the same model, or builtin"
    )
    parser.add_argument("--tasks", type=int, default=8, help="how many tasks")
    parser.add_argument("--group-size", type=int, default=4, help="rollouts of each")
    parser.add_argument("--out", help="folder of the trace; a temporary one without it")
    return parser.parse_args()


def play(asked: argparse.Namespace, run: Path) -> None:
    """Play, then say what came of it."""
    chat = ChatFormat.builtin() if asked.chat == "builtin" else ChatFormat.from_pretrained(asked.chat)

    def world() -> gym.Env:
        return gym.make("agentgym_tok/ALFWorld-v0", chat=chat, split="train", max_steps=20, max_context=8_192)

    with TraceStore(run, chat=chat) as store:
        harness = Harness(
            f"vllm:{asked.url}",  # or f"vllm:{asked.url}?concurrency=32"
            chat,
            store=store,
            sampling=Sampling(temperature=1.0, max_tokens=256),
            compaction=SummaryCompaction(at_tokens=6_000),
            retries=Retries(policy=2),  # where the server fails for a moment
            budget=Budget(seconds=600),  # of each episode
            turn_timeout_s=120,
            observers=[Observer(on_episode=lambda one: print(f"  {one.head.task}: {one.status}, {one.return_:g}"))],
        )
        started = time.monotonic()
        episodes = harness.run_many(world, range(asked.tasks), group_size=asked.group_size, concurrency=64)
        seconds = time.monotonic() - started
    counts = account(episodes)
    solved = sum(bool(episode.success) for episode in episodes)
    failed = sum(episode.status == "failed" for episode in episodes)
    print(f"{len(episodes)} episodes, {solved} solved, {failed} failed; {counts.sampled / seconds:.0f} tokens/s")
    print(f"sampled {counts.sampled} = trained {counts.trained} + masked {sum(counts.masked.values())}")
    print("verified" if verify(run, chat).ok else "broken")


def main() -> None:
    """Play where there is a server."""
    asked = options()
    if asked.url is None:
        print(HELP)
        return
    with tempfile.TemporaryDirectory() as folder:
        play(asked, Path(asked.out or folder))


if __name__ == "__main__":
    main()
