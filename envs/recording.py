"""From steps of a token environment to turns of a trace."""

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import WorldError
from agentgym_tok.tokens import Context, Ids
from agentgym_tok.trace import Edge, EdgeKind, EpisodeHead, Failure, Status, TraceStore, Turn, sent_digest
from agentgym_tok.trace.laws import answered, first_difference
from agentgym_tok.types import Completion, Message

__all__ = ["Recorder", "StepResult", "new_episode_id"]


def new_episode_id() -> str:
    """Return an id that no other process gives."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class StepResult:
    """Hold what `env.step` returned, without the observation.

    Raises:
        WorldError: The reward is no number.
    """

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise WorldError("the reward is no number", where="step", got=self.reward, expected="a finite number")

    @property
    def over(self) -> bool:
        """The episode ended here."""
        return self.terminated or self.truncated


class Recorder:
    """Turn one episode's steps into turns, and append each to a store.

    Args:
        env: The environment, just reset.
        head: What the episode is.
        info: What `reset` returned.
        store: Where turns go; None keeps them in memory only.
        opening: How the first context came about.
    """

    def __init__(
        self,
        env: TokenEnv,
        head: EpisodeHead,
        info: dict[str, Any],
        store: TraceStore | None = None,
        *,
        opening: EdgeKind = "fresh_prompt",
    ) -> None:
        self.head = head
        self.turns: list[Turn] = []
        self.success: bool | None = info["success"]
        self.env = env
        """The environment; a harness that goes on with a copy of it says so here."""
        self._store = store
        self._facts = ("shortened", "refusal", *env.metrics)
        self._anchor: str = info["text"]
        # What the environment offers next: a context, how it came about, and the messages that it was made of.
        self._edge = Edge(opening, None, 0)
        self._context = env.context
        self._messages: tuple[Message, ...] = env.conversation
        if store is not None:
            store.begin(head)

    def record(
        self,
        context: Context,
        completion: Completion,
        *,
        sent: Ids,
        seed: int = 0,
        started: float | None = None,
        step: StepResult | None = None,
        failure: Failure | None = None,
        truncation: str | None = None,
        edge: Edge | None = None,
        messages: Sequence[Message] | None = None,
        attempt: int = 0,
        used: bool = True,
        put_back: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Append one attempt at a turn.

        Args:
            context: What the policy was asked with.
            completion: What it answered.
            sent: int32 [T], the very ids that were handed to it.
            seed: Of the request.
            started: Unix time in seconds at which the request left.
            step: What the world made of the turn; None where it never got there.
            failure: What failed.
            truncation: The limit that ended the episode where the world was not asked.
            edge: How the context came about. None takes what the environment says of the context that it offered; of
                another one it looks at the ids, and what does not go on from the last used turn is `unknown`.
            messages: The conversation that another context stands for; with a declared continuation what is new in it.
                None takes what the environment says of the context that it offered, and nothing of another one.
            attempt: How often this turn was sampled before, from the same context.
            used: The episode goes on with this attempt.
            put_back: The world was put back to before the turn, so that it goes on from there.
            facts: More small JSON-able facts than the environment's own.

        Raises:
            TraceError: The store cannot take it, or the edge leads elsewhere.
        """
        now = time.time()
        info = step.info if step is not None else {}
        found, offered = self._origin(context, attempt)
        if messages is None or (edge is None and found.kind == "continuation"):
            messages = offered  # a whole conversation is more than what is new
        turn = Turn(
            episode=self.head.id,
            index=found.target,
            context=context,
            sent_digest=sent_digest(context.root, sent),
            completion=completion,
            edge=edge or found,
            messages=tuple(messages),
            text=self.env.chat.decode(completion.ids_T),
            action_text=info.get("action_text") or "",
            format_ok=_plain(info.get("format_ok")),
            valid_action=_plain(info.get("valid_action")),
            reward=step.reward if step is not None else 0.0,
            terminated=step is not None and step.terminated,
            truncated=truncation is not None or (step is not None and step.truncated),
            truncation=truncation or info.get("truncation"),
            attempt=attempt,
            used=used,
            seed=seed,
            started=now if started is None else started,
            ended=now,
            failure=failure,
            facts={
                "anchor": self._anchor,
                **{name: info[name] for name in self._facts if name in info},
                **(facts or {}),
            },
        )
        if self._store is not None:
            self._store.append(turn)
        self.turns.append(turn)
        if step is not None and used and not put_back:
            self._expect(step, turn.index)
        return turn

    def _origin(self, context: Context, attempt: int) -> tuple[Edge, tuple[Message, ...]]:
        """Return the edge of a context, leading to the turn's index, and the messages that the environment offered."""
        last = self.turns[-1].index if self.turns else -1
        if attempt:
            return Edge("retry", last, last), ()
        offered = self._edge
        if context is self._context or context.digest == self._context.digest:
            return Edge(offered.kind, offered.source, last + 1, offered.reason), self._messages
        source = next((turn for turn in reversed(self.turns) if turn.used), None)
        if source is None:
            return Edge("fresh_prompt", None, last + 1, "adopted", declared=False), ()
        place = first_difference(context.ids, answered(source).ids)
        if place is None:
            return Edge("continuation", source.index, last + 1, "adopted", declared=False), ()
        place = None if place == len(context) else place
        return Edge("unknown", source.index, last + 1, "adopted", declared=False, place=place), ()

    def _expect(self, step: StepResult, index: int) -> None:
        """Keep what the next turn will need to say where it came from."""
        info = step.info
        self.success = info["success"]
        self._anchor = info["text"]
        if step.over:
            return
        kind = info["edge"]
        self._edge = Edge(kind, index, index + 1, info.get("refusal", ""))
        self._context = self.env.context
        self._messages = info["messages"] if kind == "continuation" else self.env.conversation

    def finish(self, status: Status, failure: Failure | None = None) -> None:
        """Close the episode in the store."""
        if self._store is not None:
            self._store.finish(self.head.id, status, self.success, failure)


def _plain(value: object) -> bool | None:
    return None if value is None else bool(value)
