"""From steps of a token environment to turns of a trace."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.tokens import Context, Ids
from agentgym_tok.trace import Edge, EpisodeHead, Failure, Status, TraceStore, Turn, sent_digest
from agentgym_tok.types import Completion, Message

__all__ = ["Recorder", "Step", "new_episode_id"]


def new_episode_id() -> str:
    """Return an id that no other process gives."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Step:
    """Hold what `env.step` returned, without the observation."""

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(default_factory=dict)

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
    """

    def __init__(self, env: TokenEnv, head: EpisodeHead, info: dict[str, Any], store: TraceStore | None = None) -> None:
        self.head = head
        self.turns: list[Turn] = []
        self.success = False
        self._env = env
        self._store = store
        self._facts = ("shortened", "refusal", *env.metrics)
        self._edge = Edge("fresh_prompt", None, 0)
        self._messages: tuple[Message, ...] = env.conversation
        self._anchor: str = info["text"]
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
        step: Step | None = None,
        failure: Failure | None = None,
        truncation: str | None = None,
    ) -> Turn:
        """Append one turn.

        Args:
            context: What the policy was asked with.
            completion: What it answered.
            sent: int32 [T], the very ids that were handed to it.
            seed: Of the request.
            started: Unix time in seconds at which the request left.
            step: What the world made of the turn; None where it never got there.
            failure: What failed.
            truncation: The limit that ended the episode where the world was not asked.

        Raises:
            TraceError: The store cannot take it.
        """
        now = time.time()
        info = step.info if step is not None else {}
        turn = Turn(
            episode=self.head.id,
            index=len(self.turns),
            context=context,
            sent_digest=sent_digest(context.root, sent),
            completion=completion,
            edge=self._edge,
            messages=self._messages,
            text=self._env.chat.decode(completion.ids_T),
            action_text=info.get("action_text") or "",
            format_ok=_plain(info.get("format_ok")),
            valid_action=_plain(info.get("valid_action")),
            reward=step.reward if step is not None else 0.0,
            terminated=step is not None and step.terminated,
            truncated=truncation is not None or (step is not None and step.truncated),
            truncation=truncation or info.get("truncation"),
            seed=seed,
            started=now if started is None else started,
            ended=now,
            failure=failure,
            facts={"anchor": self._anchor, **{name: info[name] for name in self._facts if name in info}},
        )
        if self._store is not None:
            self._store.append(turn)
        self.turns.append(turn)
        if step is not None:
            self._expect(step)
        return turn

    def _expect(self, step: Step) -> None:
        """Keep what the next turn will need to say where it came from."""
        info = step.info
        self.success = bool(info["success"])
        self._anchor = info["text"]
        kind, last = info["edge"], len(self.turns) - 1
        self._edge = Edge(kind, last, last + 1, info.get("refusal", ""))
        self._messages = info["messages"] if kind == "continuation" else self._env.conversation

    def finish(self, status: Status, failure: Failure | None = None) -> None:
        """Close the episode in the store."""
        if self._store is not None:
            self._store.finish(self.head.id, status, self.success, failure)


def _plain(value: object) -> bool | None:
    return None if value is None else bool(value)
