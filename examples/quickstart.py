"""A world in token ids, a loop that you know, and a trace that proves itself.

python examples/quickstart.py
"""

import tempfile

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.envs import RecordTrace, TextAction
from agentgym_tok.trace import TraceStore, account, rows, verify


def main(run: str) -> None:
    """Play one task, log it, make its training row, prove the log."""
    chat = ChatFormat.builtin()  # or ChatFormat.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
    with TraceStore(run, chat=chat) as store:
        env = RecordTrace(gym.make("agentgym_tok/ALFWorld-v0", chat=chat, split="valid_seen"), store)
        # The world's expert writes text: TextAction encodes it once, and the ids are demonstrations, nobody's samples.
        # A model samples ids itself: then env.note(logprobs_T, sampling) and env.step(ids_T) of RecordTrace.
        expert = TextAction(env, commands=False)
        obs_T, info = expert.reset(seed=0)
        print(info["text"].splitlines()[-1])
        hints = env.get_wrapper_attr("hints")
        over = False
        while not over:
            obs_T, reward, terminated, truncated, info = expert.step(hints()["expert"])
            print(f"{info['action_text']!r:45} {len(obs_T):4} ids  reward {reward:g}  {info['text'][:45]}")
            over = terminated or truncated
        (episode,) = store.episodes()
        expert.close()

    (row,) = rows(episode, objective="sft")
    counts = account(episode, "sft")
    print(f"one training row: {len(row.ids_T)} ids, {row.mask_T.sum()} of them trained")
    print(f"demonstration {counts.demonstration} = trained {counts.trained} + masked {sum(counts.masked.values())}")
    print(f"under rl, which trains samples only: masked {dict(account(episode, 'rl').masked)}")
    print("verified" if verify(run, chat).ok else "broken")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
