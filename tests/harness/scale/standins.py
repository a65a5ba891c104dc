"""Policies and worlds of workers: slow ones, some that bring their process down, some that say their weights."""

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.policies import BasePolicy
from agentgym_tok.policies.expert import RandomPolicy
from agentgym_tok.tokens import Ids

CHAT = ChatFormat.builtin()
POISON = 3
"""Index of the task that brings a worker down."""


def home(**options: Any) -> ALFWorldEnv:
    return ALFWorldEnv(CHAT, **{"split": "valid_seen", "max_steps": 6, **options})


class Deadly(ALFWorldEnv):
    """A world that no process survives in one task."""

    def step(self, action: Ids) -> Any:
        if self.engine.task_info()["task"] == self.engine.tasks()[POISON]:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def deadly() -> ALFWorldEnv:
    return Deadly(CHAT, split="valid_seen", max_steps=6)


class Mistaken(ALFWorldEnv):
    """A world whose own code is wrong."""

    def step(self, action: Ids) -> Any:
        raise ZeroDivisionError("in the world")


def mistaken() -> ALFWorldEnv:
    return Mistaken(CHAT, split="valid_seen", max_steps=6)


class Slow(RandomPolicy):
    """Think for a moment."""

    def answer(self, request: Request) -> Completion:
        time.sleep(0.03)
        return super().answer(request)


class Taught(BasePolicy):
    """Say the version and the sum of the weights."""

    name = "taught"
    deterministic = True
    version, said = "none", "<action>look</action>"

    def answer(self, request: Request) -> Completion:
        turn_T = CHAT.encode_turn(self.said)
        versions = ((self.version, 0, len(turn_T)),)
        return Completion(turn_T, engine=self.name, sampling=request.sampling, weight_versions=versions)

    def update_weights(self, state: Mapping[str, np.ndarray[Any, Any]], version: str) -> None:
        self.version, self.said = version, f"<action>look {state['a'].sum():.0f}</action>"


slow, taught = Slow(CHAT), Taught()
