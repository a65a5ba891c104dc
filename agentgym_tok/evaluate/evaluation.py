"""Playing an evaluation: several parts, one policy, one run."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError
from agentgym_tok.evaluate.cost import CostCounter
from agentgym_tok.evaluate.folder import begun_with, check_folder
from agentgym_tok.evaluate.parts import Part, PlannedPart, Share
from agentgym_tok.evaluate.provenance import MadeBy, content_digest, json_digest, policy_digest
from agentgym_tok.evaluate.results import EpisodeResult, result_of
from agentgym_tok.evaluate.run_results import RunResults
from agentgym_tok.evaluate.scores import macro_of, passes_of, scores_of
from agentgym_tok.evaluate.shaping import shaping
from agentgym_tok.harness import Harness
from agentgym_tok.harness.crew import Crew
from agentgym_tok.harness.harness import placed
from agentgym_tok.harness.resume import finished
from agentgym_tok.policies import load_policy
from agentgym_tok.trace import Episode, RunMeta, TraceStore
from agentgym_tok.types import Policy

if TYPE_CHECKING:
    from agentgym_tok.harness.scale import RayOptions

__all__ = ["Evaluation"]

_ENDED = frozenset({"done", "failed"})


class Evaluation:
    """Play parts with one policy into one run, and make results of it.

    Args:
        parts: What is played, one after the other.
        policy: A policy, its name, or a callable `ids -> ids`. Where a run goes on, a name is loaded when a turn is
            missing, so that what is on record can be scored without the model.
        chat: Format of all environments.
        folder: Of the run.
        seed: Of the run.
        concurrency: Most episodes in flight.
        config: The whole configuration, as JSON; stands in the trace and in the results. Without it: what is said here.
        backend: Where episodes are played: `local`, `ray` or `RayOptions`; see `Harness`.

    Raises:
        ConfigError: Two parts have one name, or there is none.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        policy: "Policy | str | Callable[..., Any]",
        chat: ChatFormat,
        folder: str | Path,
        *,
        seed: int = 0,
        concurrency: int = 64,
        config: Mapping[str, Any] | None = None,
        backend: "str | RayOptions" = "local",
    ) -> None:
        names = [part.name for part in parts]
        if len(set(names)) < len(names) or not names:
            raise ConfigError("parts need names of their own", where="Evaluation", got=", ".join(names) or "no part")
        self._parts, self._chat, self._folder = tuple(parts), chat, Path(folder)
        self._given = self._policy = policy if isinstance(policy, str) else load_policy(policy, chat)
        self._policy_name = self._policy if isinstance(self._policy, str) else self._policy.name
        self._seed, self._concurrency, self._backend = seed, concurrency, backend
        self._config = dict(config) if config is not None else self._described()

    def run(self, *, resume: bool = False, progress: bool = False) -> RunResults:
        """Play what is missing, and write and return the results.

        Args:
            resume: The folder holds episodes of this evaluation: those that have ended are not played again.
            progress: Show how far it is.

        Raises:
            ConfigError: The folder holds a run that shall not go on, or one of another configuration; or there is none
                to go on with.
            TraceError: The trace cannot be written.
        """
        cost = CostCounter()
        with self._hired():
            planned, meta = self._plan(None, resume=resume)
            with TraceStore(self._folder, chat=self._chat, meta=meta) as store:
                found = [self._play(each, each.tasks, store, cost, resume, progress) for each in planned]
        results = self._results(planned, found, cost, meta)
        results.write(self._folder)
        return results

    def run_share(self, share: Share, *, resume: bool = False, progress: bool = False) -> None:
        """Play a share of each part's tasks into a shard of its own; `run` makes results of all shards.

        Args:
            share: Which one.
            resume: The folder holds episodes of this share.
            progress: Show how far it is.

        Raises:
            ConfigError: As `run`.
            TraceError: The trace cannot be written.
        """
        with self._hired():
            planned, meta = self._plan(share, resume=resume)
            with TraceStore(self._folder, shard=share.shard, chat=self._chat, meta=meta) as store:
                for each in planned:
                    self._play(each, share.take(each.tasks), store, CostCounter(), resume, progress)

    def _plan(self, share: Share | None, *, resume: bool) -> tuple[list[PlannedPart], RunMeta]:
        """Make sure that it can begin, before anything is written."""
        check_folder(self._folder, self._config, resume=resume, share=share)
        planned = [PlannedPart(part, self._seed) for part in self._parts]
        if not resume:
            self._policy = placed(self._policy, self._chat, self._backend)
        meta = RunMeta.of(
            self._chat,
            prompting=_joined(each.prompting for each in planned),
            source=_joined(each.source for each in planned),
            config=self._config,
            commit=content_digest(),
        )
        return planned, meta

    @contextlib.contextmanager
    def _hired(self) -> Iterator[None]:
        """Let workers go that were hired for this run."""
        try:
            yield
        finally:
            if isinstance(self._policy, Crew) and not isinstance(self._given, Crew):
                self._policy.close()
                self._policy = self._given

    def _play(
        self,
        planned: PlannedPart,
        tasks: Sequence[str],
        store: TraceStore,
        cost: CostCounter,
        resume: bool,
        progress: bool,
    ) -> list[EpisodeResult]:
        """Return the results of some of a part's tasks, in the order of the tasks and samples."""
        part, found = planned.part, []

        def settle(episode: Episode) -> None:
            cost.add(episode, part.name)
            found.append(result_of(episode, planned.labels, planned.metrics, part.name))

        wanted = planned.places(tasks)
        if wanted <= {(head.group_id, head.replica) for head, status in store.heads() if status in _ENDED}:
            for _, episode in finished(store, self._folder, wanted):
                settle(episode)
        else:
            self._policy = placed(self._policy, self._chat, self._backend)
            Harness(self._policy, self._chat, store=store, sampling=part.sampling).run_many(
                part.make_env,
                tasks,
                group_size=part.samples,
                concurrency=self._concurrency,
                seed=planned.seed,
                resume=self._folder if resume else None,
                on_episode=settle,
                progress=progress,
                keep=False,
            )
        order = {task: place for place, task in enumerate(tasks)}
        return sorted(found, key=lambda result: (order[result.task], result.replica))

    def _results(
        self,
        planned: Sequence[PlannedPart],
        found: Sequence[Sequence[EpisodeResult]],
        cost: CostCounter,
        meta: RunMeta,
    ) -> RunResults:
        pairs = [(each.part.name, each, results) for each, results in zip(planned, found, strict=True)]
        macros = (macro_of(results, name) for name, _, results in pairs)
        return RunResults(
            library=meta.library,
            source=meta.source,
            fingerprint=self._chat.fingerprint,
            config=self._config,
            seconds=round(cost.seconds, 3),
            parts=tuple(each.told(results) for _, each, results in pairs),
            scores=tuple(
                score for name, each, results in pairs for score in scores_of(results, each.labels.values(), name)
            ),
            macros=tuple(macro for macro in macros if macro is not None),
            passes=tuple(line for name, _, results in pairs for line in passes_of(results, name)),
            costs=tuple(cost.costs()),
            made_by=MadeBy(
                content=meta.commit or "",
                begun_with=begun_with(self._folder),
                chat=self._chat.reference,
                policy=self._policy_name,
                policy_digest=policy_digest(self._policy_name),
                weight_versions=cost.weight_versions,
                configuration=json_digest(shaping(self._config)),
            ),
            episodes=tuple(result for results in found for result in results),
        )

    def _described(self) -> dict[str, Any]:
        tasks = [
            {
                "name": part.name,
                "world": part.world,
                "episodes": part.episodes,
                "samples": part.samples,
                "sampling": part.sampling.model_dump(mode="json"),
            }
            for part in self._parts
        ]
        return {"policy": self._policy_name, "seed": self._seed, "tasks": tasks}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
