"""One cell of the study: an arm and a seed, trained from the warm start and tested on all held-out games."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import ARMS, BASE
from measured import TEST_FOLDERS

from agentgym_tok import ChatFormat, Sampling
from agentgym_tok.envs.alfworld import ALFWorldEngine, Game, GameSet, OfficialGames, SynthGames
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.harness import Harness
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training import SkillUse, TrainConfig, Training
from agentgym_tok.learner.training.models import save_model
from agentgym_tok.learner.training.run_folder import RunFolder
from agentgym_tok.learner.training.skill_prompts import with_skills
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import Episode, TraceStore, verify

__all__ = ["CHAT", "Cell", "Worlds", "play_test"]

CHAT = ChatFormat.builtin()
SKILLS = SkillUse(bank="alfworld")
TEST_SAMPLING = Sampling(temperature=0.4, max_tokens=32)
"""As the paper tests: temperature 0.4."""


@dataclass(frozen=True, slots=True)
class First:
    """Offer the first games of a set.

    Args:
        games: The set.
        count: How many.
    """

    games: GameSet
    count: int

    @property
    def source(self) -> str:
        """Return the name of the set."""
        return self.games.source

    def tasks(self) -> Sequence[str]:
        """Return their ids."""
        return self.games.tasks()[: self.count]

    def game(self, task: str) -> Game:
        """Return one of them."""
        return self.games.game(task)

    def goals(self, task: str) -> tuple[str, ...]:
        """Return the goals that people wrote for one of them."""
        return self.games.goals(task)


@dataclass(frozen=True, slots=True)
class Worlds:
    """Say which games are played.

    Args:
        source: `official`, or `synth` for the reduced study.
        splits: Held-out ones.
        games: How many of each split are played; all without it.
        tries: How often each game is tested.
        train_steps: Turns of an episode in training.
        test_steps: Turns of an episode in tests; 50 is what everybody reports.
    """

    source: str = "official"
    splits: tuple[str, ...] = ("valid_seen", "valid_unseen")
    games: int | None = None
    tries: int = 1
    train_steps: int = 25
    test_steps: int = 50

    def train(self) -> TokenEnv:
        """Make the world of training."""
        return self._world("train", self.train_steps)

    def test(self, split: str) -> TokenEnv:
        """Make the world of a test."""
        return self._world(split, self.test_steps)

    def _world(self, split: str, max_steps: int) -> TokenEnv:
        games: GameSet = OfficialGames(split) if self.source == "official" else SynthGames(split)
        engine = ALFWorldEngine(games if self.games is None else First(games, self.games))
        return TokenEnv(engine, CHAT, "transcript", words=ALFWORLD_WORDS, max_steps=max_steps)


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold a cell.

    Args:
        arm: A name of `ARMS`.
        seed: Of everything that is drawn.
        folder: Of the cell.
        warm: The model that all arms begin with.
        worlds: Which games.
        changed: What differs from `BASE`, for the reduced study.
        learner: Another one shows that what it breaks matters.
    """

    arm: str
    seed: int
    folder: Path
    warm: Path
    worlds: Worlds
    changed: Mapping[str, Any]
    learner: type[TorchLearner] = TorchLearner

    def run(self) -> None:
        """Train and test; what is done already is left, what was broken off goes on."""
        model = self.folder / "train" / "model"
        if not model.is_dir():
            self._train(model)
        for with_them in ARMS[self.arm].tests:
            play_test(model, self.folder / TEST_FOLDERS[with_them], self.worlds, skills=with_them)

    def config(self) -> TrainConfig:
        """Return how the cell is trained."""
        arm = ARMS[self.arm]
        return TrainConfig(**{**BASE, **self.changed, **arm.options, "objective": arm.objective, "seed": self.seed})

    def _train(self, model: Path) -> None:
        config, folder = self.config(), RunFolder(self.folder / "train")
        learner = self.learner(self.warm, CHAT, config.loss, config.learner)
        training = Training(
            config,
            chat=CHAT,
            make_env=self.worlds.train,
            policy=load_policy(f"numpy:{self.warm}", CHAT),
            learner=learner,
            folder=folder.path,
            on_step=lambda step, figures: print(
                f"{self.arm} {self.seed}: step {step}, success {figures['rollouts/success']:.2f}", flush=True
            ),
        )
        training.run(resume=folder.is_begun)
        if not verify(folder.path).ok:
            raise SystemExit(f"the trace of {folder.path} is broken")
        part = model.with_name("model.part")  # a model whose writing was broken off is none
        save_model(learner.model, learner.weights(), str(self.warm), CHAT, part)
        part.replace(model)


def play_test(model: Path, folder: Path, worlds: Worlds, *, skills: bool = False) -> None:
    """Play all held-out games once, and write who solved what into `results.json`.

    Args:
        model: Folder of the model.
        folder: Of the test.
        worlds: Which games.
        skills: The prompts hold skills.
    """
    results = folder / "results.json"
    if results.is_file():
        return
    store_of_skills = SkillStore(SKILLS, CHAT, 0)
    found: dict[str, Any] = {}
    for split in worlds.splits:

        def make(split: str = split) -> TokenEnv:
            return worlds.test(split)

        make_env = with_skills(make, lambda: store_of_skills.retriever) if skills else make
        tasks = make().engine.tasks()
        with TraceStore(folder, shard=split, chat=CHAT) as store:
            harness = Harness(load_policy(f"numpy:{model}", CHAT), CHAT, store=store, sampling=TEST_SAMPLING)
            episodes = harness.run_many(make_env, tasks, group_size=worlds.tries, concurrency=64, seed=0, resume=folder)
        found[split] = {
            task: {
                "success": fmean(bool(episode.success) for episode in group),
                "turns": fmean(len(episode.steps) for episode in group),
            }
            for task, group in zip(tasks, _groups(episodes, worlds.tries), strict=True)
        }
    if not verify(folder).ok:
        raise SystemExit(f"the trace of {folder} is broken")
    part = results.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    part.replace(results)


def _groups(episodes: Sequence[Episode], size: int) -> Iterator[Sequence[Episode]]:
    return (episodes[place : place + size] for place in range(0, len(episodes), size))
