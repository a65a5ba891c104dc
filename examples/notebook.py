"""A rollout, cell by cell: Jupyter (by jupytext), VS Code and PyCharm open this file as a notebook.

python examples/notebook.py
"""

# %% A world, a policy, a harness
import asyncio

import gymnasium as gym

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Harness, Observer, Retries
from agentgym_tok.trace import Episode, account, rows

chat = ChatFormat.builtin()  # or ChatFormat.from_pretrained(MODEL)


def world() -> gym.Env:
    """Make the world."""
    return gym.make("agentgym_tok/ALFWorld-v0", chat=chat, split="valid_seen", max_steps=20)


watch = Observer(on_turn=lambda turn: print(f"  {turn.index:2} {turn.action_text!r}"))
harness = Harness(
    "expert",  # or "random", "hf:PATH", "vllm:URL#MODEL", or any function from ids to ids
    chat,
    retries=Retries(invalid_action=2),  # a command that the world refuses is sampled again
    observers=[watch],
)

# %% One rollout
episode = harness.run(world(), seed=0)
print(f"{episode.head.task}: {episode.status}, return {episode.return_:g}")

# %% What the policy saw before its second turn, id for id, and what it said
turn = episode.turns[1]
print(f"{len(turn.context)} ids, the last of them {turn.context.ids[-12:].tolist()}")
print(chat.decode(turn.context.ids)[-250:])
print(f"-> {turn.completion.ids_T.tolist()} {turn.text!r}")


# %% A notebook has a loop that runs: `run` waits beside it, and in a cell you may also `await harness.arun(...)`
async def cell() -> tuple[Episode, list[Episode]]:
    """Be a cell of a notebook, whose code runs inside a loop."""
    waited = harness.run(world(), seed=1)
    awaited = await harness.arun_many(world, tasks=[0, 1])
    return waited, awaited


waited, awaited = asyncio.run(cell())
print([one.return_ for one in (waited, *awaited)])

# %% Training rows: an expert's turns are demonstrations, which `sft` trains and `rl` does not
(row,) = rows(episode, objective="sft")
print(f"{len(row.ids_T)} ids, {row.mask_T.sum()} of them trained; under rl masked {dict(account(episode).masked)}")
