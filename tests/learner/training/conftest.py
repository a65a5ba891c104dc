"""A model that knows how to press, and not which button."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")
sys.path.insert(0, str(Path(__file__).parent))

import two_buttons

from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training.models import make_model, save_model
from agentgym_tok.policies import load_policy


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that has imitated random presses, in a world that does not say which are right."""
    folder, chat = tmp_path_factory.mktemp("warm"), two_buttons.CHAT
    config = two_buttons.changed(objective="sft", steps=60, learner={"device": "cpu", "learning_rate": 1e-2})
    path = make_model(two_buttons.MODEL, chat, folder / "start")
    learner = TorchLearner(path, chat, config.loss, config.learner)
    two_buttons.training(
        folder / "run",
        config.model_copy(update={"save_every": 60}),
        make_env=two_buttons.make_silent_env,
        policy=None,
        learner=learner,
        expert=load_policy("random", chat),
    ).run()
    save_model(learner.model, learner.weights(), path, chat, folder / "model")
    return folder / "model"
