"""A world in token ids, a loop that you know, and a trace that proves itself.

python examples/quickstart.py
"""

import tempfile

import gymnasium as gym
import numpy as np

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs import RecordTrace
from agentgym_tok.trace import RunMeta, TraceStore, account, rows, verify


def main(run: str) -> None:
    """Play one task, log it, make its training row, prove the log."""
    chat = ChatFormat.builtin()  # or ChatFormat.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
    meta = RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size, chat=chat.reference)
    with TraceStore(run, meta=meta) as store:
        env = RecordTrace(gym.make("agentgym_tok/ALFWorld-v0", chat=chat, split="valid_seen"), store)
        obs_T, info = env.reset(seed=0)
        print(info["text"].splitlines()[-1])
        hints = env.get_wrapper_attr("hints")
        over = False
        while not over:
            # Your model goes here: it gets obs_T, the whole context, and samples a turn. This one knows the way.
            action_T = chat.encode_turn(hints()["expert"])
            env.note(np.full(len(action_T), -0.1), Sampling())  # log-probabilities of the ids, and how they were drawn
            obs_T, reward, terminated, truncated, info = env.step(action_T)
            print(f"{info['action_text']!r:45} {len(obs_T):4} ids  reward {reward:g}  {info['text'][:45]}")
            over = terminated or truncated
        (episode,) = store.episodes()
        env.close()

    (row,) = rows(episode)
    accounting = account(episode)
    print(f"one training row: {len(row.ids_T)} ids, {row.mask_T.sum()} of them trained")
    print(f"sampled {accounting.sampled} = trained {accounting.trained} + masked {sum(accounting.masked.values())}")
    print("verified" if verify(run, chat).ok else "broken")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
