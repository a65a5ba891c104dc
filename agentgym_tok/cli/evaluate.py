"""`agentgym-tok eval WORLD` and `eval CONFIG.toml`: play episodes, log them, score them."""

import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.config_file import PRESET, config_file, laid_over, read_toml
from agentgym_tok.cli.score_tables import cost_table, passes_table, score_table
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import WORLDS, WorldOptions, chat_format, env_maker
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import Evaluation, Part, RunResults, Share
from agentgym_tok.evaluate.paper_table import paper_table
from agentgym_tok.evaluate.parts import PlannedPart
from agentgym_tok.harness.scale import RayOptions
from agentgym_tok.types import Sampling

__all__ = ["PRESETS", "Options", "PartOptions", "run"]

PRESETS = Path(str(files("agentgym_tok.evaluate") / "presets"))
"""Folder of TOML files; the name of a preset is that of its file."""


class PartOptions(WorldOptions):
    """Say what one part of an evaluation plays."""

    name: str = Field(min_length=1, description="unique; the world's own without it")
    world: str = Field(description="alfworld, searchqa or webshop")
    episodes: int | None = Field(default=None, ge=1, description="how many tasks, drawn by the seed; all without it")
    samples: int = Field(default=1, ge=1, description="episodes of each task, for pass@k and pass^k")
    sampling: Sampling = Field(default=Sampling(), description="how turns are drawn")


class Options(WorldOptions):
    """Evaluate a policy on worlds: tables by kind of task, results as JSON, and a trace that can be verified.

    A TOML file names several parts in [[tasks]]; each takes what it does not say itself from the file's top. Options
    beside it change what both say.
    """

    world: CliPositionalArg[str] = Field(description="alfworld, searchqa or webshop; or a TOML file, or preset:NAME")
    policy: str = Field(
        default="builtin", description="builtin, explorer, expert, random, hf:PATH, python:module:function"
    )
    episodes: int | None = Field(default=None, ge=1, description="how many tasks, drawn by the seed; all without it")
    samples: int = Field(default=1, ge=1, description="episodes of each task, for pass@k and pass^k")
    seed: int = Field(default=0, ge=0, description="seed of the choice of tasks and of every request")
    concurrency: int = Field(default=64, ge=1, description="most episodes in flight")
    backend: Literal["local", "ray"] = Field(default="local", description="play here, or on a Ray cluster (extra ray)")
    workers: int = Field(default=2, ge=1, description="of a cluster: processes, each with an engine of its own")
    address: str | None = Field(default=None, description="HOST:PORT of a cluster, or auto; without it one is started")
    worker_cpus: float = Field(default=1.0, gt=0, description="of each worker, as Ray counts them")
    worker_gpus: float = Field(default=0.0, ge=0, description="of each worker, as Ray counts them")
    sampling: Sampling = Field(default=Sampling(), description="how turns are drawn")
    tasks: tuple[PartOptions, ...] = Field(default=(), description="parts, in a file's [[tasks]]; else the one world")
    out: str | None = Field(default=None, description="folder of the run; runs/eval-WORLD-TIME without it")
    resume: bool = Field(default=False, description="go on with the run in --out: play what is missing, score all")
    shard: str | None = Field(default=None, description="1/4: play every fourth task; --resume scores them together")
    dry_run: bool = Field(default=False, description="show the configuration and the tasks, and stop")

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Lay what is given over what the file says, and both over each part."""
        if not isinstance(given, Mapping) or not _is_file(given.get("world")):
            return given
        said = {name: value for name, value in given.items() if name != "world"}
        values = laid_over(read_toml(config_file(given["world"], PRESETS)), said)
        parts = [part for part in values.get("tasks", ()) if isinstance(part, Mapping)]
        if parts:
            shared = {name: value for name, value in values.items() if name in PartOptions.model_fields}
            own = {name: value for name, value in said.items() if name in PartOptions.model_fields}
            laid = [laid_over(laid_over(shared, part), own) for part in parts]
            values["tasks"] = [{"name": part.get("world"), **part} for part in laid]
            values["world"] = ", ".join(dict.fromkeys(str(part.get("world")) for part in laid))
        return values

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        for part in self.tasks:
            if part.chat != self.chat:
                raise ValueError(f"a run has one chat format, and part {part.name} names another one")
        return self

    def parts(self) -> list[PartOptions]:
        """Return the parts, each with its world's own split where none was named."""
        if self.tasks:
            return [part.of(part.world) for part in self.tasks]
        shared = {name: getattr(self, name) for name in PartOptions.model_fields if name != "name"}
        return [PartOptions(name=self.world, **shared).of(self.world)]


def run(options: Options) -> int:
    """Evaluate, print tables, write `results.json`, `table.md` and the trace.

    Raises:
        ConfigError: The run's folder holds another run, or what was chosen does not go together.
        UnknownName: Something has no such name.
        DataMissing: The world's data are not there.
    """
    if options.resume and options.out is None:
        raise ConfigError("it is not said which run goes on", where="eval --resume", fix="name its folder by --out")
    share = None if options.shard is None else Share.parse(options.shard)
    chosen = options.parts()
    options = options.of(options.world).model_copy(update={"tasks": tuple(chosen)})
    chat = chat_format(options.chat)
    parts = [
        Part(each.name, env_maker(each.world, each, chat), each.episodes, each.samples, each.sampling, each.world)
        for each in chosen
    ]
    if options.policy == "builtin":
        _check_known(chosen, parts)
    if options.dry_run:
        _plan(options, parts)
        return 0
    worlds = "-".join(dict.fromkeys(each.world for each in chosen))
    folder = Path(options.out or f"runs/eval-{worlds}-{time.strftime('%Y%m%d-%H%M%S')}")
    config = options.model_dump(mode="json")
    evaluation = Evaluation(
        parts,
        options.policy,
        chat,
        folder,
        seed=options.seed,
        concurrency=options.concurrency,
        config=config,
        backend=_backend(options),
    )
    if share is None:
        _report(options.policy, chosen, evaluation.run(resume=options.resume, progress=True), folder)
    else:
        evaluation.run_share(share, resume=options.resume, progress=True)
        print(f"shard {options.shard} is played; when all are, the same command scores them: --resume, no --shard")
    return 0


def _check_known(chosen: Sequence[PartOptions], parts: Sequence[Part]) -> None:
    """Refuse, before anything is played, what the weights that ship have never seen: each turn of it would fail."""
    for options, part in zip(chosen, parts, strict=True):
        if options.world not in WORLDS or options.prompting != "transcript":
            if options.world in WORLDS:
                part.make_env()  # a name that the world does not know either is its own to refuse
            raise ConfigError(
                "the weights that ship do not know this",
                where=f"eval {options.world}",
                got=f"{options.world} with {options.prompting} prompting",
                expected=f"{', '.join(WORLDS)}, with transcript prompting",
                fix="name another policy, such as --policy explorer or hf:PATH",
            )


def _backend(options: Options) -> str | RayOptions:
    if options.backend == "local":
        return "local"
    return RayOptions(
        workers=options.workers, address=options.address, cpus=options.worker_cpus, gpus=options.worker_gpus
    )


def _is_file(world: object) -> bool:
    return isinstance(world, str) and (world.endswith(".toml") or world.startswith(PRESET))


def _plan(options: Options, parts: Sequence[Part]) -> None:
    print(options.model_dump_json(indent=2))
    for part in parts:
        planned = PlannedPart(part, options.seed)
        print(f"{len(planned.tasks)} tasks of {planned.source}, the first: {planned.tasks[0]}")


def _report(policy: str, chosen: Sequence[PartOptions], results: RunResults, folder: Path) -> None:
    (folder / "table.md").write_text(paper_table({policy: results}), encoding="utf-8")
    for options, part in zip(chosen, results.parts, strict=True):
        title = f"{policy} on {part.source} {options.split}, {part.prompting}"
        scores = [score for score in results.scores if score.part == part.name]
        macro = next((macro for macro in results.macros if macro.part == part.name), None)
        show(score_table(title, scores, part.metrics, macro))
    if results.passes:
        show(passes_table(results.passes))
    show(cost_table(results.costs))
    if {results.made_by.content} != {*results.made_by.begun_with}:
        print("the trace was begun with other files of the library: made_by in results.json names the digests")
    for episode in [episode for episode in results.episodes if episode.failure is not None][:5]:
        print(f"failed: {episode.task}: {episode.failure}")
    turns = sum(episode.steps for episode in results.episodes)
    print(f"{len(results.episodes)} episodes, {turns} turns in {results.seconds:.1f} s; results and trace in {folder}")
