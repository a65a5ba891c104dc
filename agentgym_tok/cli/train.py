"""`agentgym-tok train CONFIG`: play, learn, and hand the weights back, until the steps are done."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg
from rich.table import Table
from rich.text import Text

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.config_file import PRESET, config_file, laid_over, read_toml
from agentgym_tok.cli.progress import Amounts
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import WorldOptions, env_maker, tokens_of
from agentgym_tok.envs.success_reward import SuccessReward
from agentgym_tok.errors import AgentGymTokError, ConfigError
from agentgym_tok.harness.loggers import Logger, TensorBoardLogger, TrackioLogger, WandbLogger
from agentgym_tok.learner.learners import make_learner
from agentgym_tok.learner.training import TrainConfig, Training
from agentgym_tok.learner.training.demonstrations import RECORDED
from agentgym_tok.learner.training.models import is_new, make_model, save_model
from agentgym_tok.learner.training.plan import describe
from agentgym_tok.learner.training.presets import PRESETS
from agentgym_tok.learner.training.run_folder import RunFolder
from agentgym_tok.policies import load_policy
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Scorer

__all__ = ["Options", "run"]


class Options(TrainConfig, WorldOptions):
    """Train a policy on a world, by any published objective; CONFIG is a TOML file or preset:NAME.

    Options beside it change what it says: --learner.learning-rate 1e-5.
    """

    config: CliPositionalArg[str] = Field(description="a TOML file, or preset:NAME")
    world: str = Field(description="alfworld, searchqa, webshop, or a plug-in's")
    split: str | None = Field(default="train", description="tasks to train on")
    held_out: str | None = Field(default=None, description="split for tests; what papers report without it")
    success_reward: float | None = Field(
        default=None, description="what solving a task is worth, in the place of the world's own reward"
    )
    model: str = Field(description="folder or id of a model, or new:qwen2?hidden=128&layers=2")
    template: dict[str, Any] = Field(
        default_factory=dict, description="settings of the model's chat template, as JSON: enable_thinking"
    )
    learner_class: str = Field(
        default="torch", description="what takes the updates: torch, or a plug-in's; both get loss and learner"
    )
    policy: str = Field(default="hf:{model}", description="what samples; {model} stands for the model's folder or id")
    loggers: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = Field(
        default=(), description="where figures go besides figures.jsonl"
    )
    out: str | None = Field(default=None, description="folder of the run; runs/train-NAME-TIME without it")
    resume: bool = Field(default=False, description="go on with the run in --out")
    dry_run: bool = Field(default=False, description="show the plan, and stop")

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Lay what is given over what the file says."""
        if not isinstance(given, Mapping) or not isinstance(given.get("config"), str):
            return given
        return laid_over(read_toml(config_file(given["config"], PRESETS)), given)


def run(options: Options) -> int:
    """Train, or show the plan; the run's folder has the trace, figures, a checkpoint and the trained model.

    Raises:
        ConfigError: What was chosen does not go together, or the folder holds another run.
        UnknownName: Something has no such name.
        DataMissing: The world's data or the model is not there.
        MissingExtra: A package is not installed.
    """
    options.checked()
    if options.resume and options.out is None:
        raise ConfigError("it is not said which run goes on", where="train --resume", fix="name its folder by --out")
    name = options.config.removeprefix(PRESET) if options.config.startswith(PRESET) else Path(options.config).stem
    folder = Path(options.out or f"runs/train-{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    if options.dry_run:
        _plan(options, folder)
        return 0
    about = options.model_dump(mode="json")
    # Before a model is loaded, since it may take long.
    files = RunFolder(folder)
    files.check(about, resume=options.resume)
    chat = _chat(options)
    model = make_model(options.model, chat, files.start)
    learner = make_learner(options.learner_class, model, chat, options.loss, options.learner)
    plays = not options.imitates or options.student_tasks > 0 or options.evaluation.every > 0
    is_shown = options.imitates and not options.demonstrations.startswith(RECORDED)
    loggers = [_logger(kind, files) for kind in options.loggers]
    try:
        with Amounts() as amounts:
            Training(
                options,
                chat=chat,
                make_env=_env_maker(options, chat, options.split),
                make_held_out=_env_maker(options, chat, options.held_out) if options.evaluation.every else None,
                policy=load_policy(options.policy.replace("{model}", model), chat) if plays else None,
                learner=learner,
                folder=folder,
                expert=load_policy(options.demonstrations, chat) if is_shown else None,
                teacher=_teacher(options, chat),
                about=about,
                loggers=loggers,
                on_step=lambda step, figures: _say(amounts, step, options.steps, figures),
            ).run(resume=options.resume)
    finally:
        for logger in loggers:
            logger.close()
    trained = getattr(learner, "model", None)
    if trained is not None:
        save_model(trained, learner.weights(), model, chat, files.model)
        print(f"{options.steps} steps; the model is in {files.model}, figures and trace in {folder}")
    else:
        print(f"{options.steps} steps; the learner shows no model, figures and trace are in {folder}")
    return 0


def _plan(options: Options, folder: Path) -> None:
    """Print what would happen; the world is looked at, the model is not."""
    max_steps, splits = options.max_steps, {}
    # Tasks do not depend on the chat format, and a model's own may have to be downloaded.
    for what, split in (("trained on", options.split), ("held out", options.held_out)):
        try:
            tokens = tokens_of(_env_maker(options, ChatFormat.builtin(), split)())
        except AgentGymTokError as error:
            splits[what] = f"cannot be looked at here: {error}"
            continue
        max_steps = tokens.max_steps
        splits[what] = f"{len(tokens.engine.tasks()):,} tasks of {tokens.engine.source}, {tokens.prompting.name}"
        tokens.close()
    plan = {
        "model": options.model + (", from scratch" if is_new(options.model) else ""),
        "learner": options.learner_class,
        "policy": options.policy,
        "world": f"{options.world}, {options.source}, at most {max_steps or 'its own number of'} turns",
        **splits,
        **describe(options, max_steps=max_steps or 50, max_context=options.max_context),
        "writes to": str(folder),
    }
    table = Table(title=f"train {options.config}", title_justify="left", show_header=False)
    for heading, text in plan.items():
        table.add_row(heading, Text(text))  # names of models hold what rich reads as emoji
    show(table)


def _env_maker(options: Options, chat: ChatFormat, split: str | None) -> "Callable[[], gym.Env[Ids, Ids]]":
    make = env_maker(options.world, options.model_copy(update={"split": split}), chat)
    reward = options.success_reward
    return make if reward is None else lambda: SuccessReward(make(), reward=reward)


def _chat(options: Options) -> ChatFormat:
    if options.chat == "builtin":
        return ChatFormat.builtin()
    return ChatFormat.from_pretrained(options.chat, template_kwargs=options.template)


def _teacher(options: Options, chat: ChatFormat) -> Scorer | None:
    if options.teacher is None:
        return None
    teacher = load_policy(options.teacher, chat)
    if not isinstance(teacher, Scorer):
        raise ConfigError(
            "the teacher cannot score", where="teacher", got=teacher.name, expected="a policy with score, such as hf:"
        )
    return teacher


def _logger(kind: str, files: RunFolder) -> Logger:
    if kind == "tensorboard":
        return TensorBoardLogger(files.path / "tensorboard", first=files.episodes)
    return (TrackioLogger if kind == "trackio" else WandbLogger)(files.path.name, first=files.episodes)


_SAID = ("rollouts/return", "rollouts/success", "rollouts/failed", "loss", "evaluation/success")


def _say(amounts: Amounts, step: int, steps: int, figures: Mapping[str, float]) -> None:
    amounts.show("steps", step, steps)
    said = ", ".join(f"{name} {figures[name]:.3g}" for name in _SAID if name in figures)
    print(f"step {step} of {steps}: {said}", flush=True)
