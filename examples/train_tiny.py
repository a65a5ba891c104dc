"""Train a small model on a CPU: first it imitates, then it finds out what pays. Needs the extra `torch`.

python examples/train_tiny.py

Two buttons, one of which pays. Random presses teach the model how to press; GRPO teaches it which button. With a
world of the library `agentgym-tok train preset:tiny-alfworld-sft` does the same from a shell.
"""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.learner.torch_learner import TorchConfig, TorchLearner
from agentgym_tok.learner.training import TrainConfig, Training
from agentgym_tok.learner.training.models import make_model, save_model
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import verify

CHAT = ChatFormat.builtin()
MODEL = "new:qwen2?hidden=32&layers=1&heads=2&kv_heads=1&context=512"
IMITATION_STEPS, IMITATION_RATE = 60, 1e-2
STEPS, RATE = 20, 1.5e-3
TASKS, GROUP_SIZE = 4, 4  # of a step


class TwoButtons:
    """A world of one turn. It does not say which presses are right, it only pays."""

    source = "TwoButtons"

    def tasks(self) -> Sequence[str]:
        """Return eight rooms."""
        return [f"room-{number}" for number in range(8)]

    def reset(self, task: str | None = None) -> TextObservation:
        """Enter a room."""
        self.task = task or "room-0"
        return TextObservation(f"You are in {self.task}.", success=None, admissible_commands=("left", "right"))

    def step(self, command: str) -> TextObservation:
        """Press a button."""
        return TextObservation("Click.", float(command == "left"), terminated=True, success=None)

    def clone(self) -> Self:
        """Copy the world."""
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Name the running task."""
        return {"task": self.task}

    def expert_command(self) -> str | None:
        """There is no expert."""
        return None


def world() -> TokenEnv:
    """Make the environment."""
    return TokenEnv(TwoButtons(), CHAT, max_context=400)


with tempfile.TemporaryDirectory() as folder:
    runs = Path(folder)
    path = make_model(MODEL, CHAT, runs / "new")
    config = TrainConfig(
        objective="sft",
        steps=IMITATION_STEPS,
        tasks=TASKS,
        group_size=GROUP_SIZE,
        learner=TorchConfig(device="cpu", learning_rate=IMITATION_RATE),
    )
    learner = TorchLearner(path, CHAT, config.loss, config.learner)
    presses = load_policy("random", CHAT)
    found = Training(
        config, chat=CHAT, make_env=world, policy=None, expert=presses, learner=learner, folder=runs / "imitation"
    ).run()
    print(f"imitated random presses: {found['loss']:.2f} nats a token")
    save_model(learner.model, learner.weights(), path, CHAT, runs / "model")

    config = TrainConfig(
        objective="dapo",
        steps=STEPS,
        tasks=TASKS,
        group_size=GROUP_SIZE,
        sampling=Sampling(max_tokens=12),
        learner=TorchConfig(device="cpu", learning_rate=RATE),
    )
    returns: list[float] = []
    Training(
        config,
        chat=CHAT,
        make_env=world,
        policy=load_policy(f"hf:{runs / 'model'}?device=cpu", CHAT),
        learner=TorchLearner(runs / "model", CHAT, config.loss, config.learner),
        folder=runs / "reinforcement",
        on_step=lambda _step, figures: returns.append(figures["rollouts/return"]),
    ).run()
    print("mean return of each step:", *(f"{value:.2f}" for value in returns))
    print(f"the trace {'verifies' if verify(runs / 'reinforcement').ok else 'is broken'}")
    print(f"it {'learned' if sum(returns[-4:]) > sum(returns[:4]) + 1 else 'did not learn'} which button pays")
