"""Two groups of rollouts whose every number is written here: several turns, a rewritten context, a child."""

from dataclasses import replace

import numpy as np

from agentgym_tok import ChatFormat
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Edge, Episode, EpisodeHead, Row, Turn, assign_advantages, rows, sent_digest
from agentgym_tok.types import Completion, Message, Sampling

CHAT = ChatFormat.builtin()
TASKS = ("task a", "task a", "task b", "task b")
RETURNS = (1.0, 0.0, 0.25, 0.75)
SYSTEM = Message("system", "Be brief.", trusted=True)


def episode(place: int, *, turns: int = 2, kind: str = "continuation") -> Episode:
    """Return the rollout at a place, of so many turns; the last one goes on by an edge of this kind."""
    draw = np.random.default_rng(place)
    made: list[Turn] = []
    messages = (SYSTEM, Message("user", f"You are in room {place}. What now?"))
    context: Context = CHAT.open(messages)
    for index in range(turns):
        ids = [*draw.integers(200, 4000, size=2 + place).tolist(), CHAT.stop_ids[0]]
        # Halves and quarters are the same in every float format.
        logprobs = np.array([-0.25 * (1 + (place + index + at) % 7) for at in range(len(ids))], np.float32)
        completion = Completion(np.array(ids, np.int32), logprobs, logprobs="raw", sampling=Sampling())
        last = index == turns - 1
        edge = Edge(kind if last else "continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0)
        if index and last and kind != "continuation":
            messages = (SYSTEM, Message("user", f"You have walked. What now, in room {place}?"))
            context = CHAT.open(messages)
        sent = sent_digest(context.root, context.ids)
        reward = RETURNS[place] if last else 0.0
        turn = Turn(f"rollout {place}", index, context, sent, completion, edge, messages, reward=reward)
        made.append(turn)
        messages = (Message("user", f"You see nothing ({index})."),)
        context = CHAT.bridge(context.extend(Span(completion.ids_T, "sampled", logprobs)), messages)  # type: ignore[assignment]
    head = EpisodeHead(f"rollout {place}", TASKS[place], group_id=TASKS[place], created=0.0)
    return Episode(head, tuple(made), status="done")


def simple() -> list[Episode]:
    """Return four rollouts of one row each."""
    return [episode(place, turns=1 + place % 3) for place in range(4)]


def rich() -> list[Episode]:
    """Return four rollouts, of which the second has a rewritten context and the third a child."""
    first, _, third, fourth = simple()
    child = episode(3, turns=1)
    head = replace(child.head, id="child", parent=third.id, parent_turn=0, group_id=third.group_id)
    turns = tuple(replace(turn, episode="child", reward=0.0) for turn in child.turns)
    return [
        first,
        episode(1, turns=3, kind="compaction"),
        replace(third, children=(replace(child, head=head, turns=turns),)),
        fourth,
    ]


def with_advantages(episodes: list[Episode]) -> list[Row]:
    """Return the rows of rollouts, the k-th with advantage k - 1.5."""
    made = [row for one in episodes for row in rows(one)]
    return assign_advantages(made, {one.id: place - 1.5 for place, one in enumerate(episodes)})
