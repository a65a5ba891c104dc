"""`agentgym-tok eval WORLD`: play episodes, log them, score them."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok import __version__
from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.tables import score_table, show
from agentgym_tok.cli.worlds import WorldOptions, chat_format, env_maker, tokens_of
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate import EpisodeResult, result_of, scores_of
from agentgym_tok.evaluate.results import ALFWORLD_LABELS
from agentgym_tok.harness import Harness
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import RunMeta, TraceStore
from agentgym_tok.types import Sampling

__all__ = ["Options", "run"]


class Options(WorldOptions):
    """Evaluate a policy on a world: a table by kind of task, results as JSON, and a trace that can be verified."""

    world: CliPositionalArg[str] = Field(description="alfworld, searchqa or webshop")
    policy: str = Field(default="expert", description="expert, explorer, random, hf:PATH or python:module:function")
    episodes: int | None = Field(default=None, ge=1, description="how many tasks, drawn by the seed; all without it")
    seed: int = Field(default=0, ge=0, description="seed of the choice of tasks and of every request")
    concurrency: int = Field(default=64, ge=1, description="most episodes in flight")
    sampling: Sampling = Field(default=Sampling(), description="how turns are drawn")
    out: str | None = Field(default=None, description="folder of the run; runs/eval-WORLD-TIME without it")
    dry_run: bool = Field(default=False, description="show the configuration and the tasks, and stop")


def run(options: Options) -> int:
    """Evaluate, print the table, write `results.json` and the trace.

    Raises:
        ConfigError: The run's folder holds another run.
    """
    options = options.of(options.world)
    chat = chat_format(options.chat)
    make_env = env_maker(options.world, options, chat)
    policy = load_policy(options.policy, chat)
    probe = make_env()
    tokens = tokens_of(probe)
    tasks = choose(tokens.engine.tasks(), options.episodes, options.seed)
    if options.dry_run:
        print(options.model_dump_json(indent=2))
        print(f"{len(tasks)} tasks of {tokens.engine.source}, the first: {tasks[0]}")
        return 0
    folder = Path(options.out or f"runs/eval-{options.world}-{time.strftime('%Y%m%d-%H%M%S')}")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError("the run's folder is not empty", where=str(folder), fix="choose another --out")
    meta = _meta(options, chat, tokens)
    started = time.perf_counter()
    with TraceStore(folder, chat=chat, meta=meta) as store:
        harness = Harness(policy, chat, store=store, sampling=options.sampling)
        episodes = harness.run_many(
            make_env,
            tasks,
            concurrency=options.concurrency,
            seed=options.seed,
            progress=True,
        )
    results = [result_of(episode, tokens.labels or ALFWORLD_LABELS, tokens.metrics) for episode in episodes]
    probe.close()
    _report(options, results, folder, tokens, time.perf_counter() - started)
    return 0


def choose(tasks: Sequence[str], episodes: int | None, seed: int) -> list[str]:
    """Return so many tasks without repetition, drawn by the seed, in the world's own order; all without a number."""
    if episodes is None or episodes >= len(tasks):
        return list(tasks)
    drawn = np.sort(np.random.default_rng(seed).choice(len(tasks), size=episodes, replace=False))
    return [tasks[int(index)] for index in drawn]


def _meta(options: Options, chat: ChatFormat, tokens: TokenEnv) -> RunMeta:
    return RunMeta.of(
        chat,
        prompting=tokens.prompting.name,
        source=tokens.engine.source,
        config=options.model_dump(mode="json"),
    )


def _report(options: Options, results: list[EpisodeResult], folder: Path, tokens: TokenEnv, seconds: float) -> None:
    scores = scores_of(results, (tokens.labels or ALFWORLD_LABELS).values())
    title = f"{options.policy} on {tokens.engine.source} {options.split}, {options.prompting}"
    show(score_table(title, scores, tokens.metrics))
    turns = sum(result.steps for result in results)
    written = {
        "library": __version__,
        "config": options.model_dump(mode="json"),
        "source": tokens.engine.source,
        "fingerprint": tokens.chat.fingerprint,
        "seconds": round(seconds, 3),
        "scores": [score.model_dump() for score in scores],
        "episodes": [result.model_dump() for result in results],
    }
    file = folder / "results.json"
    file.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    for result in [result for result in results if result.failure is not None][:5]:
        print(f"failed: {result.task}: {result.failure}")
    print(f"{len(results)} episodes, {turns} turns in {seconds:.1f} s; results and trace in {folder}")
