"""The loop: worlds, harness, rows, learner, and weights back to the engine."""

import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, PolicyError
from agentgym_tok.harness import Harness
from agentgym_tok.harness.loggers import Logger
from agentgym_tok.harness.starts import TokenGym
from agentgym_tok.learner.checkpoint import read_checkpoint, write_checkpoint
from agentgym_tok.learner.training.batches import Batches
from agentgym_tok.learner.training.config import TrainConfig
from agentgym_tok.learner.training.corrections import Corrections
from agentgym_tok.learner.training.demonstrations import RECORDED, Recorded, Shown
from agentgym_tok.learner.training.player import Player, Weights
from agentgym_tok.learner.training.rollouts import Played, Rollouts, failed_share, means, task_ids
from agentgym_tok.learner.training.run_folder import RunFolder
from agentgym_tok.learner.training.skill_prompts import with_skills
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.learner.training.trainable import Trainable
from agentgym_tok.trace import Episode, RunMeta, TraceStore
from agentgym_tok.types import Policy, Scorer

__all__ = ["Training"]

_LOG = logging.getLogger(__name__)

_PATIENCE = 3
"""Steps in a row of which every rollout failed, after which the run stops."""


class Training:
    """Train a policy on a world.

    A step plays its tasks by the newest weights, makes a batch of the rollouts, takes one update, and hands the weights
    back. With `staleness` above 0 the rollouts of later steps are drawn in another thread meanwhile, each step's by one
    version of the weights, at most so many updates old: so a run with a deterministic policy can be repeated, whatever
    takes how long. Every rollout, of tests too (shard `evaluation`), stands in the trace of the run's folder.

    Args:
        config: What is done.
        chat: The chat format of all.
        make_env: Makes an environment of the tasks that are trained on.
        policy: The engine that samples, and takes weights. None where demonstrations are imitated and nothing is
            tested.
        learner: What is trained; it and the engine begin with the same weights.
        folder: Of the run.
        make_held_out: Makes an environment of the tasks for tests; None where there are none.
        expert: Plays the demonstrations of `sft`, unless these are on record.
        teacher: Another model that scores what the student drew, for `opd`.
        about: What is saved as the run's configuration; by default `config`.
        loggers: Get each rollout and the figures of each step; their axis is the number of rollouts.
        on_step: Called with the number of each step that is done, and its figures.

    Raises:
        ConfigError: What was chosen does not go together, or something is missing for it.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        chat: ChatFormat,
        make_env: Callable[[], TokenGym],
        policy: Policy | None,
        learner: Trainable,
        folder: str | Path,
        make_held_out: Callable[[], TokenGym] | None = None,
        expert: Policy | None = None,
        teacher: Scorer | None = None,
        about: Mapping[str, Any] | None = None,
        loggers: Sequence[Logger] = (),
        on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    ) -> None:
        self.config = config.checked()
        self.folder = RunFolder(folder)
        self._chat, self._policy, self._learner = chat, policy, learner
        self._expert, self._loggers = expert, list(loggers)
        self._on_step = on_step or (lambda _step, _figures: None)
        self._about = dict(about) if about is not None else config.model_dump(mode="json")
        self._skills = None if config.skills is None else SkillStore(config.skills, chat, config.seed)
        self._rollouts = self._world(make_env, "student")
        self._batches = Batches(config, chat, self._skills, teacher, self._corrections())
        self._tests = self._world(make_held_out, "evaluation") if make_held_out and config.evaluation.every else None
        self._check()
        self._store: Any = None
        self._player: Any = None
        self._harness: Any = None
        self._tester: Any = None
        self._shown: Any = None
        self._step = self._begun = self._episodes = self._lost = 0
        self._versions: deque[str] = deque([learner.version], maxlen=config.staleness + 1)

    def run(self, *, resume: bool = False) -> dict[str, float]:
        """Take all steps that are still to take.

        Args:
            resume: Go on with the run of the folder, from its last checkpoint. Rollouts that are in the trace already
                are taken from it. With a policy whose answers do not depend on its batches (`hf:` on a CPU with
                `batch_size=1`) the result is that of a run which was never interrupted, bit for bit.

        Returns:
            The figures of the last step.

        Raises:
            ConfigError: The folder holds another run, or one that was begun otherwise.
            PolicyError: The engine does not take the weights; or in several steps all rollouts failed.
            FingerprintMismatch: Something belongs to another chat format.
        """
        config = self.config
        self.folder.open(self._about, resume=resume)
        found: dict[str, float] = {}
        with ExitStack() as opened:
            self._open(opened)
            if resume and self.folder.checkpoint.is_file():
                self._load()
            self.folder.cut_figures(self._step + 1 if self._step else 0)
            if not self._step and config.evaluation.first and self._tests is not None:
                self._write(0, self._test(0))
            while self._step < config.steps:
                found = self._take(self._step)
                self._step += 1
                self._write(self._step, found)
                is_over = self._lost >= _PATIENCE
                self._lost = 0 if is_over else self._lost
                if is_over or self._step % config.save_every == 0 or self._step == config.steps:
                    self._save()
                if is_over:
                    raise PolicyError(
                        f"in {_PATIENCE} steps all rollouts failed",
                        where=str(self.folder.path),
                        fix="look at them with `agentgym-tok trace show`, mend the engine, and go on by --resume",
                    )
                self._on_step(self._step, found)
        return found

    # ---- a step

    def _take(self, step: int) -> dict[str, float]:
        """Play, update, learn about skills, test."""
        began = time.perf_counter()
        played = self._played(step)
        waited = time.perf_counter() - began
        self._episodes += len(played.all)
        lags = {version: lag for lag, version in enumerate(reversed(self._versions))}
        batch, found = self._batches.of(played, lags)
        figures = {**means(played.all, "rollouts"), "rollouts/failed": failed_share(played.all), **found}
        figures |= {"batch/skipped": float(batch is None), "time/rollouts_waited": waited}
        if batch is not None:
            self._learner.loss = self.config.loss_of(step)
            figures |= self._learner.update(batch)
            self._versions.append(self._learner.version)
        self._lost = self._lost + 1 if failed_share(played.all) == 1 else 0
        figures |= self._learned(played.kept, step + 1)
        if self._tests is not None and (step + 1) % self.config.evaluation.every == 0:
            figures |= self._test(step + 1)
        return {**figures, "time/step": time.perf_counter() - began}

    def _played(self, step: int) -> Played:
        if self.config.imitates:
            return self._imitated(step)
        while self._begun <= min(step + self.config.staleness, self.config.steps - 1):
            self._begin(self._begun, self._weights())
            self._begun += 1
        played: Played = self._player.ahead.popleft().future.result()
        return played

    def _imitated(self, step: int) -> Played:
        shown = self._shown.of(step) if self._shown is not None else ()
        count = self.config.student_tasks
        if not count:
            return Played(shown, shown)
        rollouts, driver = self._rollouts, self._harness
        own = self._player.submit(self._weights(), lambda: rollouts.once(driver, step, slice(count))).result()
        return Played(shown, own, corrected=own)

    def _begin(self, step: int, weights: Weights) -> None:
        self._player.begin(step, weights, lambda: self._rollouts.of(self._harness, step))

    def _weights(self) -> Weights:
        """Return the newest weights: a copy where the learner goes on while they are used."""
        state = self._learner.weights()
        return Weights(self._learner.version, copy.deepcopy(dict(state)) if self.config.staleness else state)

    def _learned(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        skills = self._skills
        if skills is None or self.config.skills is None or self.config.imitates:
            return {}
        skills.learn(episodes)
        if not self.config.skills.grow_every or step % self.config.skills.grow_every:
            return {}

        async def grow() -> dict[str, float]:
            return skills.grow(self._player.policy, step)

        return dict(self._player.submit(self._weights(), grow).result())

    def _test(self, step: int) -> dict[str, float]:
        tests, tester = self._tests, self._tester
        assert tests is not None  # asked for where there are some
        return dict(self._player.submit(self._weights(), lambda: tests.test(tester, step)).result())

    def _write(self, step: int, figures: Mapping[str, float]) -> None:
        self.folder.write_figures(step, self._learner.version, self._episodes, figures)
        for logger in [*self._loggers]:
            try:
                logger.write(figures, self._episodes)
            except Exception as error:  # noqa: BLE001  # a curve is worth no run
                self._loggers.remove(logger)
                _LOG.warning("%s failed at step %d: %s", type(logger).__name__, step, error)

    # ---- going on

    def _save(self) -> None:
        ahead = [
            {"step": task.step, "version": task.weights.version, "weights": dict(task.weights.state)}
            for task in (self._player.ahead if self._player is not None else ())
        ]
        training = {
            "step": self._step,
            "begun": self._begun,
            "episodes": self._episodes,
            "lost": self._lost,
            "versions": [*self._versions],
            "ahead": ahead,
            "skills": None if self._skills is None else self._skills.state(),
        }
        write_checkpoint(self.folder.checkpoint, {"learner": dict(self._learner.state()), "training": training})

    def _load(self) -> None:
        state = read_checkpoint(self.folder.checkpoint)
        self._learner.load_state(state["learner"])
        training = state["training"]
        self._step, self._begun, self._episodes, self._lost = (
            int(training[name]) for name in ("step", "begun", "episodes", "lost")
        )
        self._versions.extend(training["versions"])
        if self._skills is not None:
            self._skills.load_state(training["skills"], self._store.episode)
        for task in training["ahead"]:
            self._begin(task["step"], Weights(task["version"], task["weights"]))

    # ---- what is needed

    def _world(self, make_env: Callable[[], TokenGym], reader: Any) -> Rollouts:
        skills = self._skills
        if skills is not None and self.config.read_by(reader):
            make_env = with_skills(make_env, lambda: skills.retriever)
        tasks, tokens = task_ids(make_env)
        tokens.close()
        return Rollouts(self.config, make_env, tasks)

    def _corrections(self) -> Corrections | None:
        if not self.config.student_tasks:
            return None
        _, tokens = task_ids(self._rollouts.make_env)
        tokens.close()
        return Corrections.of(tokens)

    def _check(self) -> None:
        config, where = self.config, "training"
        if self._policy is None and (self._tests is not None or not config.imitates or config.student_tasks):
            raise ConfigError("nobody plays", where=where, got="policy None", expected="a policy that takes weights")
        if config.evaluation.every and self._tests is None:
            raise ConfigError("there are no held-out tasks for tests", where=where, expected="make_held_out")
        if config.imitates and self._expert is None and not config.demonstrations.startswith(RECORDED):
            raise ConfigError("nobody is imitated", where=where, expected="expert, or demonstrations trace:FOLDER")

    def _open(self, opened: ExitStack) -> None:
        """Open the trace, and let the engine have a thread."""
        config, path = self.config, self.folder.path
        _, tokens = task_ids(self._rollouts.make_env)
        meta = RunMeta.of(self._chat, prompting=tokens.prompting.name, source=tokens.engine.source, config=self._about)
        tokens.close()
        self._store = opened.enter_context(TraceStore(path, chat=self._chat, meta=meta))
        if self._policy is not None:
            self._harness = self._driver(self._policy, self._store, config.sampling)
        if self._tests is not None and self._policy is not None:
            tested = opened.enter_context(TraceStore(path, shard="evaluation", chat=self._chat, meta=meta))
            self._tester = self._driver(self._policy, tested, config.evaluation.sampling, watched=False)
        if self._policy is not None:
            # Last, so that it lets go of the stores before they close.
            self._player = opened.enter_context(Player(self._policy))
        if not config.imitates or config.student_tasks == config.tasks:
            return
        if self._expert is not None:
            expert = self._driver(self._expert, self._store, config.sampling)
            self._shown = Shown(expert, self._rollouts.once, slice(config.student_tasks, None))
        else:
            runs = config.demonstrations.removeprefix(RECORDED)
            count = (config.tasks - config.student_tasks) * config.group_size
            self._shown = Recorded(runs, self._chat, count=count, seed=config.seed)
            opened.callback(self._shown.close)

    def _driver(self, policy: Policy, store: TraceStore, sampling: Any, *, watched: bool = True) -> Harness:
        return Harness(
            policy,
            self._chat,
            store=store,
            sampling=sampling,
            turn_timeout_s=self.config.turn_timeout_s,
            observers=self._loggers if watched else (),
        )
