"""A world of one turn and two buttons, one of which pays; any first word presses one of them."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.learner.torch_config import TorchConfig
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training import Evaluation, TrainConfig, Training
from agentgym_tok.learner.training.models import make_model
from agentgym_tok.policies.hf import HFPolicy

CHAT = ChatFormat.builtin()
MODEL = "new:qwen2?hidden=32&layers=1&heads=2&kv_heads=1&context=512"


class TwoButtons:
    """The left button pays.

    Args:
        turns: Presses of an episode.
        says: Whether the world says that a task is solved, beside its reward.
        tasks: How many tasks.
    """

    source = "TwoButtons"

    def __init__(self, *, turns: int = 1, says: bool = True, tasks: int = 8) -> None:
        self._turns, self._says, self._left = turns, says, turns
        self._tasks = [f"press-{number}" for number in range(tasks)]
        self._task = self._tasks[0]

    def tasks(self) -> Sequence[str]:
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        self._task, self._left = task or self._task, self._turns
        return TextObservation(f"Room {self._task}: a left and a right button.", admissible_commands=("left", "right"))

    def step(self, command: str) -> TextObservation:
        is_left = command == "left"
        self._left -= 1
        is_over = self._left == 0
        success = is_left and is_over if self._says else None
        return TextObservation("Click.", float(is_left), terminated=is_over, success=success, valid=True)

    def clone(self) -> Self:
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        return {"task": self._task, "task_type": "pick_and_place_simple", "goal": "press the button that pays"}

    def expert_command(self) -> str:
        return "left"


def make_env() -> TokenEnv:
    return TokenEnv(TwoButtons(), CHAT, max_context=400)


def make_silent_env() -> TokenEnv:
    return TokenEnv(TwoButtons(says=False), CHAT, max_context=400)


CONFIG = TrainConfig(
    objective="ppo",
    steps=3,
    tasks=4,
    group_size=4,
    sampling=Sampling(max_tokens=12),
    learner=TorchConfig(device="cpu", learning_rate=3e-3),
    save_every=1,
)
TESTS = Evaluation(every=2, episodes=4, sampling=Sampling(max_tokens=12, temperature=0.4))


def changed(**options: Any) -> TrainConfig:
    """Return the configuration with some other options; a new objective brings its own loss."""
    kept = CONFIG.model_dump(exclude={"loss", "advantages"})
    return TrainConfig(**kept | options)


def training(folder: Path, config: TrainConfig = CONFIG, **parts: Any) -> Training:
    """Return a training of a small new model, whose policy answers one request at a time."""
    path = make_model(MODEL, CHAT, folder.parent / "start")
    given: dict[str, Any] = {
        "chat": CHAT,
        "make_env": make_env,
        "make_held_out": make_env,
        "policy": HFPolicy(path, CHAT, device="cpu", batch_size=1),
        "learner": TorchLearner(path, CHAT, config.loss, config.learner),
        "folder": folder,
    }
    return Training(config, **given | parts)
