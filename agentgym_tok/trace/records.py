"""What a trace holds: edges, failures, turns, episodes, and the rows that learners train on."""

import importlib.metadata
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.errors import TraceError
from agentgym_tok.tokens import TURN_ORIGINS, Context, Ids, Logprobs, Root
from agentgym_tok.trace.codec import ids_bytes
from agentgym_tok.trace.schema import FORMAT
from agentgym_tok.types import Completion, Experts, Message, Support

__all__ = [
    "Boundary",
    "Edge",
    "EdgeKind",
    "Episode",
    "EpisodeHead",
    "Failure",
    "Redacted",
    "Row",
    "RowStatus",
    "RunMeta",
    "Status",
    "Turn",
    "sent_digest",
]

EdgeKind: TypeAlias = Literal[
    "continuation",
    "fresh_prompt",
    "rerender",
    "compaction",
    "strip_reasoning",
    "retry",
    "subagent_call",
    "subagent_return",
    "system_swap",
    "tools_change",
    "auxiliary",
    "unknown",
]
Boundary: TypeAlias = Literal["policy", "harness", "world", "tool", "store", "client"]
Status: TypeAlias = Literal["running", "done", "failed", "abandoned"]
Redacted: TypeAlias = Literal["ids", "texts"]
RowStatus: TypeAlias = Literal["running", "done", "truncated", "failed", "abandoned"]

EDGE_KINDS: frozenset[str] = frozenset(get_args(EdgeKind))
BOUNDARIES: frozenset[str] = frozenset(get_args(Boundary))
ENDED: frozenset[str] = frozenset(get_args(Status)) - {"running"}

_DIGEST_LENGTH = 32


def sent_digest(root: Root, ids_T: Ids) -> str:
    """Name the ids that an engine was handed; equal to `Context.digest` where they are the context's.

    Args:
        root: Of the conversation.
        ids_T: int32 [T], the very array of the request.

    Returns:
        32 hex digits.
    """
    hasher = root.hasher()
    hasher.update(ids_bytes(ids_T))
    return hasher.hexdigest()


def library_version() -> str:
    """Return the version of the installed library."""
    try:
        return importlib.metadata.version("agentgym-tok")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class Edge:
    """Say how a turn's context came from an earlier turn of its episode.

    Args:
        kind: How.
        source: Index of the earlier turn, meaning its used attempt; None where there is none. A `retry` that samples
            the same context again has its own index here, meaning the attempt before it.
        target: Index of this turn.
        reason: Why, for people; a rewrite says what forced it.
        declared: The harness said so; False where the kind was found out from the ids.
        place: First token at which the context leaves the source's ids, context and answer; None where one of both
            begins with the other, or where nobody looked.
    """

    kind: EdgeKind
    source: int | None
    target: int
    reason: str = ""
    declared: bool = True
    place: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in EDGE_KINDS:
            raise TraceError(
                "unknown edge kind", where="Edge", got=repr(self.kind), expected=", ".join(get_args(EdgeKind))
            )
        if self.target < 0 or not (self.source is None or 0 <= self.source <= self.target):
            got = f"{self.source} -> {self.target}"
            raise TraceError("an edge leads from an earlier turn to a later one", where="Edge", got=got)
        if self.place is not None and (self.place < 0 or self.source is None or self.kind == "continuation"):
            got = f"{self.kind} from {self.source}, place {self.place}"
            raise TraceError("an edge that leaves nothing has no place", where="Edge", got=got, expected="place=None")
        if self.kind == "continuation" and (self.source is None or self.source == self.target):
            got = f"{self.source} -> {self.target}"
            raise TraceError("a continuation goes on from an earlier turn", where="Edge", got=got)


@dataclass(frozen=True, slots=True)
class Failure:
    """Say at which boundary something failed.

    Args:
        boundary: Whose fault it was.
        kind: Name of the error.
        message: Its words.
    """

    boundary: Boundary
    kind: str
    message: str = ""

    def __post_init__(self) -> None:
        if self.boundary not in BOUNDARIES:
            expected = ", ".join(get_args(Boundary))
            raise TraceError("unknown boundary", where="Failure", got=repr(self.boundary), expected=expected)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Hold one attempt at one turn: what the engine got, what it answered, and what came of it.

    Args:
        episode: Id of the episode.
        index: Place of the turn in the episode, from 0.
        context: What the engine received.
        sent_digest: `sent_digest` of the ids that were handed to the engine.
        completion: What it answered; without ids where it failed.
        edge: Where the context came from.
        messages: New input since the previous turn, for people and replay. On an edge that opens a new prompt:
            the whole conversation that was rendered.
        text: The completion, decoded.
        action_text: What the world was told.
        format_ok: The answer kept the protocol's form; None where nobody looked.
        valid_action: The world accepted it; None where it never got there.
        reward: Of this turn alone, raw.
        terminated: The world ended the episode here.
        truncated: A limit ended it here.
        truncation: Which one.
        attempt: How often this turn had been sampled before.
        used: The episode went on with this attempt; true for at most one attempt of a turn.
        seed: Of the request.
        started: Unix time in seconds at which the request left.
        ended: Unix time in seconds at which the world had answered.
        failure: What failed in this turn.
        facts: Small JSON-able facts; `anchor` is the raw world text that step groups are made by.
        redacted: What was taken out of the file since; set by readers alone. `ids`: some of the context or answer,
            which stand as underscores; `texts`: some of all that is free text.
    """

    episode: str
    index: int
    context: Context
    sent_digest: str
    completion: Completion
    edge: Edge
    messages: tuple[Message, ...] = ()
    text: str = ""
    action_text: str = ""
    format_ok: bool | None = None
    valid_action: bool | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    truncation: str | None = None
    attempt: int = 0
    used: bool = True
    seed: int = 0
    started: float = 0.0
    ended: float = 0.0
    failure: Failure | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    redacted: frozenset[Redacted] = frozenset()

    def __post_init__(self) -> None:
        where = f"turn {self.index} of {self.episode}"
        if self.edge.target != self.index:
            raise TraceError("the edge leads elsewhere", where=where, got=self.edge.target, expected=self.index)
        if self.attempt < 0 or (self.edge.source == self.index and self.attempt == 0):
            got = f"attempt {self.attempt}, edge from {self.edge.source}"
            raise TraceError("a first attempt repeats nothing", where=where, got=got)
        if self.completion.origin not in TURN_ORIGINS:
            expected = "sampled, demonstration or forced"
            raise TraceError("no policy's turn", where=where, got=self.completion.origin, expected=expected)
        if len(self.sent_digest) != _DIGEST_LENGTH or set(self.sent_digest) - set("0123456789abcdef"):
            raise TraceError(
                "no digest", where=f"{where}: sent_digest", got=repr(self.sent_digest), expected="32 hex digits"
            )
        times = (self.reward, self.started, self.ended)
        if not all(map(math.isfinite, times)):
            got = f"reward, started, ended = {times}"
            raise TraceError(
                "a number is not finite", where=where, got=got, fix="a failed world gives reward 0 and a Failure"
            )
        # Negative zero would not survive the file.
        object.__setattr__(self, "reward", float(self.reward) + 0.0)


@dataclass(frozen=True, slots=True)
class EpisodeHead:
    """Say what an episode is, before its first turn.

    Args:
        id: Unique in the run.
        task: Id of the task in its world.
        source: The name that scores carry, such as `"ALFWorld-synth"`.
        group_id: Rollouts of one group share it; empty takes the episode's own id.
        replica: Place in the group.
        seed: The episode's seed.
        parent: Id of the episode that opened this one as a subagent.
        parent_turn: Index of the turn there that did.
        role: What the agent is for.
        created: Unix time in seconds.
    """

    id: str
    task: str
    source: str = ""
    group_id: str = ""
    replica: int = 0
    seed: int = 0
    parent: str | None = None
    parent_turn: int | None = None
    role: str = "agent"
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if not self.id or self.parent == self.id:
            got = f"id={self.id!r}, parent={self.parent!r}"
            raise TraceError("an episode needs an id of its own", where="EpisodeHead", got=got)
        if not self.group_id:
            object.__setattr__(self, "group_id", self.id)


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """Hold one rollout.

    Args:
        head: What it is.
        turns: All attempts at all turns, in the order in which they were written.
        status: `running` until it was finished.
        success: The world's verdict; None where there is none.
        failure: What ended it, where `status` is `failed`.
        children: Subagents, each an episode.
    """

    head: EpisodeHead
    turns: tuple[Turn, ...] = ()
    status: Status = "running"
    success: bool | None = None
    failure: Failure | None = None
    children: tuple["Episode", ...] = ()

    @property
    def id(self) -> str:
        """The id."""
        return self.head.id

    @property
    def group_id(self) -> str:
        """The group."""
        return self.head.group_id

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges, one for each attempt."""
        return tuple(turn.edge for turn in self.turns)

    @property
    def return_(self) -> float:
        """Sum of the used turns' rewards."""
        return math.fsum(turn.reward for turn in self.turns if turn.used)

    @property
    def steps(self) -> tuple[Turn, ...]:
        """The walk: for each index the used attempt, else the last one."""
        steps: dict[int, Turn] = {}
        for turn in self.turns:
            if turn.used or turn.index not in steps or not steps[turn.index].used:
                steps[turn.index] = turn
        return tuple(steps.values())


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Hold one training sequence; `[T]` arrays say nothing where `mask_T` is false.

    `N` counts the turns of the whole episode, so that step returns can be computed from any of its rows.

    Args:
        ids_T: int32 [T].
        mask_T: bool [T]; true on the tokens that this row trains, each in the exact context that produced it.
        logprobs_T: float32 [T], nats; of the engine that drew the token; 0 elsewhere and where there is none.
        version_T: int32 [T], index into `versions`; -1 elsewhere and where the engine named none.
        turn_T: int32 [T], index of the token's turn, on the axis N; -1 elsewhere.
        temperature_T: float32 [T]; 1 elsewhere. A greedy turn has 0.
        advantage_T: float32 [T], 0 elsewhere; None until `assign_advantages`.
        reward: The episode's return.
        turn_rewards_N: float64 [N]; 0 for a turn none of whose attempts was used.
        anchor_N: The raw world text before each turn.
        valid_N: int8 [N]: 1 accepted, 0 refused by the world, -1 broken form, -2 unknown.
        rollout_id: The episode.
        group_id: The group of the root rollout.
        task: The task.
        parent_rollout: The root rollout whose advantage a subagent's row inherits; None in the root's own rows.
        weight: `loss = sum_rows weight * mean_T loss_T / sum_rows weight`.
        status: The episode's, or `truncated` where a limit ended it.
        versions: The weight versions that `version_T` points at.
        experts_T_L_K: uint16 [T, L, K], the experts that each layer of a mixture chose, for replay of the routing; 0
            elsewhere. None unless every trained turn has them.
        support: The ids that each token could be drawn from, none elsewhere. None unless every trained turn has them.
    """

    ids_T: Ids
    mask_T: NDArray[np.bool_]
    logprobs_T: Logprobs
    version_T: NDArray[np.int32]
    turn_T: NDArray[np.int32]
    temperature_T: NDArray[np.float32]
    advantage_T: NDArray[np.float32] | None
    reward: float
    turn_rewards_N: NDArray[np.float64]
    anchor_N: tuple[str, ...]
    valid_N: NDArray[np.int8]
    rollout_id: str
    group_id: str
    task: str
    parent_rollout: str | None
    weight: float
    status: RowStatus
    versions: tuple[str, ...] = ()
    experts_T_L_K: Experts | None = None
    support: Support | None = None


class RunMeta(Config):
    """Say what a run was made with; stands in every shard."""

    fingerprint: str = Field(description="`ChatFormat.fingerprint`: tokenizer, template and settings")
    vocab_size: int = Field(gt=0, description="every id is below it")
    chat: str = Field(default="", description='name of the chat format: "builtin", a folder or an id')
    recipe: dict[str, Any] = Field(default_factory=dict, description="what `ChatFormat.from_recipe` makes it of again")
    prompting: str = Field(default="", description="the preset")
    source: str = Field(default="", description="the name that scores carry")
    config: dict[str, Any] = Field(default_factory=dict, description="the command's whole configuration")
    commit: str | None = Field(default=None, description="revision of the code that ran")
    library: str = Field(default_factory=library_version, description="version of this library")
    created: float = Field(default_factory=time.time, description="Unix time in seconds")
    format_version: str = Field(
        default=f"{FORMAT[0]}.{FORMAT[1]}", description="version of the trace format, major.minor"
    )

    @classmethod
    def of(cls, chat: ChatFormat, **fields: Any) -> Self:
        """Say what a run with this chat format is made with.

        Args:
            chat: The format.
            fields: The other fields, such as `source` and `config`.
        """
        made = {"fingerprint": chat.fingerprint, "vocab_size": chat.vocab_size, "chat": chat.reference}
        return cls(**made, recipe=chat.recipe, **fields)
