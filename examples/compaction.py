"""Long episodes in short contexts: what a window forgets, and a summary keeps. Every sampled id is still accounted for.

python examples/compaction.py
"""

import re
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np

from agentgym_tok import ChatFormat
from agentgym_tok.harness import Compaction, Harness, SummaryCompaction, WindowCompaction
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import Episode, TraceStore, account, rows, verify

CHAT = ChatFormat.builtin()  # or ChatFormat.from_pretrained(MODEL), with "hf:PATH" or "vllm:URL" as the policy
TASKS = (7, 36, 75, 81, 87, 97)  # of the kind "put a THING in PLACE", in rooms with many places
LIMIT = 600  # ids; None of at_tokens and at_turns would mean three quarters of the world's max_context
ASK = "Write down where you have looked and what you hold."
PLACE = r"(?:On the|The) (\w+ \d+)(?:,| is)"  # as the world speaks of one that was looked at
COMPACTIONS: dict[str, Compaction | None] = {
    "none": None,
    "window": WindowCompaction(at_tokens=LIMIT, keep=4),  # first prompt, first turn, last exchanges
    "summary": SummaryCompaction(
        at_tokens=LIMIT,
        keep=1,  # last exchanges that stay as they are
        max_tokens=512,
        attempts=2,
        request=ASK,
    ),
}


class Searcher:
    """Look into one place after the other. It knows nothing but its context: what is cut off there is forgotten."""

    def __call__(self, ids_T: Ids) -> tuple[Ids, list[float]]:
        """Return a turn; a rule has no doubt, so each id has the log-probability 0."""
        turn_T = CHAT.encode_turn(self.say(CHAT.decode(ids_T)))
        return turn_T, np.zeros(len(turn_T)).tolist()

    def say(self, text: str) -> str:
        """Read the context, decide."""
        seen = text.rpartition("<|im_start|>user")[2]
        places = re.findall(r"\ban? (\w+ \d+)", text.partition("Looking quickly around you")[2].partition("\n")[0])
        thing, goal = re.findall(r"put (?:an?|some) (\w+) (?:in|on) (\w+)", text)[0]
        notes = re.findall(r"I looked into: (.*)\. I hold: (.*)\.", text)
        looked = [place for known, _ in notes for place in known.split(", ")] + re.findall(PLACE, text)
        held = [one for _, one in notes if one != "nothing"] + re.findall(r"You pick up the (\w+ \d+)", text)
        if ASK in seen:
            return f"I looked into: {', '.join(dict.fromkeys(looked))}. I hold: {(held or ['nothing'])[-1]}."
        return f"<action>{self.act(seen, places, thing, goal, looked, held)}</action>"

    def act(self, seen: str, places: list[str], thing: str, goal: str, looked: list[str], held: list[str]) -> str:
        """Go on from what is seen."""
        here = (re.findall(PLACE, seen) or [""])[-1]
        found = re.search(rf"\ban? ({thing} \d+)", seen)
        if here and f"The {here} is closed" in seen:
            return f"open {here}"
        if held and here.startswith(goal):
            return f"move {held[-1]} to {here}"
        if here and found and not held:
            return f"take {found[1]} from {here}"
        left = [place for place in places if (place.startswith(goal) if held else place not in looked)]
        # Nothing happens where one stands before the place already.
        return f"{'examine' if 'Nothing happens' in seen else 'go to'} {(left or places)[0]}"


def world() -> gym.Env:
    """Make the world."""
    return gym.make("agentgym_tok/ALFWorld-v0", chat=CHAT, split="valid_unseen", max_steps=50)


def play(name: str, run: Path) -> list[Episode]:
    """Play all tasks, print a line, prove the trace."""
    with TraceStore(run, chat=CHAT) as store:
        episodes = Harness(Searcher(), CHAT, store=store, compaction=COMPACTIONS[name]).run_many(world, tasks=TASKS)
    turns = [turn for episode in episodes for turn in episode.turns]
    rewrites = sum(turn.edge.kind == "compaction" for turn in turns)
    counts = account(episodes)
    print(
        f"{name:8} solved {sum(bool(episode.success) for episode in episodes)} of {len(episodes)}"
        f"  turns {len(turns):3}  rewrites {rewrites:2}  longest context {max(len(turn.context) for turn in turns):4}"
        f"  rows {sum(len(rows(episode)) for episode in episodes):2}"
        f"  sampled {counts.sampled} = trained {counts.trained} + masked {sum(counts.masked.values())}"
        f"  {'verified' if verify(run, CHAT).ok else 'broken'}"
    )
    return episodes


def main() -> None:
    """Compare, then show the context after a summary."""
    with tempfile.TemporaryDirectory() as folder:
        played = {name: play(name, Path(folder) / name) for name in COMPACTIONS}
    turns = played["summary"][1].turns
    place = next(place for place, turn in enumerate(turns) if turn.edge.kind == "compaction")
    summary_T, context_T = turns[place - 1].completion.ids_T, turns[place].context.ids
    first = len(turns[0].context)
    print(f"\n{first} ids of the first prompt, the summary id for id, the last exchange; {turns[place].edge.reason}:")
    print(CHAT.decode(context_T[first:]))
    assert summary_T.tolist() == context_T[first : first + len(summary_T)].tolist()


if __name__ == "__main__":
    main()
