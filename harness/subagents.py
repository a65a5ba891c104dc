"""Handing a part of the task to a child: a tool in the model's own dialect opens a conversation of its own."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from agentgym_tok.config import Config
from agentgym_tok.envs.engine import TextEngine
from agentgym_tok.envs.prompting import Prompting
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.harness.budget import Budget
from agentgym_tok.harness.errand import Errand, Report, Visit, Visiting
from agentgym_tok.harness.tools import Toolbox
from agentgym_tok.types import Sampling

__all__ = ["DELEGATE", "REPORT", "Subagents", "child_env"]

DELEGATE, REPORT = "delegate", "report"
"""Names of the tools: with one a caller opens a child, with the other a child in a world answers."""


class Subagents(Config):
    """Let the policy call `delegate(task)`: a child works on it, and its answer comes back as a tool message.

    Several calls in one turn run at the same time. A child is an episode of its own, with its caller as parent: its
    turns are sampled, logged and trained. For credit it inherits the advantage of the root rollout; the weights of a
    root and all its descendants sum to 1 (`rows`). A `score` gives each answer a reward of its own beside that, for
    learners that take one.

    What ends a caller, a cancellation or a limit, ends its children; a child that fails answers with the failure.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    prompt: str = Field(
        default="You work on one part of a larger task for another agent. Answer with what was asked for, as short as "
        "you can; nobody reads anything else that you write.",
        description="who the child is; replace it with words of your world",
    )
    world: Literal["none", "clone"] = Field(
        default="none",
        description="what the child acts in: nothing, so that its words are the answer; or a copy of its caller's "
        "world as it stands, which changes nothing for the caller, and which it ends by the tool `report`",
    )
    tools: Toolbox | None = Field(default=None, description="the child's tools, fresh ones for each child; None: none")
    max_depth: int = Field(default=1, ge=1, description="how deep children may have children of their own")
    max_children: int = Field(default=8, ge=1, description="most children that one episode may open")
    budget: Budget = Field(default=Budget(turns=16), description="of each child; it counts for its caller's, too")
    sampling: Sampling | None = Field(default=None, description="how a child's turns are drawn; None: as its caller's")
    max_answer: int = Field(default=4_000, ge=1, description="longest answer, in characters; the rest is cut off")
    score: Callable[[str], float] | None = Field(default=None, description="gives the reward of a child's answer")


def delegate_schema() -> Mapping[str, Any]:
    """Return what the policy is told about `delegate`."""
    return _schema(
        DELEGATE,
        "Hand one self-contained part of the task to a helper and get its answer. Several calls in one turn run at the "
        "same time.",
        "task",
        "What to do, in words that need nothing of this conversation.",
    )


def report_schema() -> Mapping[str, Any]:
    """Return what a child in a world is told about `report`."""
    return _schema(REPORT, "Give your answer and end your work.", "answer", "The answer, complete in itself.")


def child_env(subagents: Subagents, caller: TokenEnv, task: str) -> TokenEnv:
    """Make the environment of a child.

    Args:
        subagents: Says what it may act in.
        caller: The calling episode's environment.
        task: What the child is to do.

    Raises:
        CloneUnsupported: The world cannot be copied.
    """
    world: TextEngine
    prompting: Prompting
    if subagents.world == "none":
        world, prompting = Errand(task, caller.engine.source, subagents.score), Report(subagents.prompt)
    else:
        world = Visit(caller.engine.clone(), caller.observation)
        prompting = Visiting(caller.prompting, subagents.prompt, task)
    return TokenEnv(
        world,
        caller.chat,
        prompting,
        max_steps=caller.max_steps,
        max_context=caller.max_context,
        max_action=caller.max_action,
        max_observation_tokens=caller.max_observation_tokens,
        isolation="none",
    )


def _schema(name: str, description: str, argument: str, meaning: str) -> Mapping[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
