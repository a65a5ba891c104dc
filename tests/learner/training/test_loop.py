"""A run learns what pays, stands whole in its trace, and goes on after an interruption as if there had been none."""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from two_buttons import CHAT, CONFIG, TESTS, TwoButtons, changed, make_env, training

from agentgym_tok import Completion, Request
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError, PolicyError, TransientPolicyError
from agentgym_tok.harness import Harness
from agentgym_tok.harness.loggers import Logger
from agentgym_tok.learner.losses import OBJECTIVES
from agentgym_tok.learner.teacher import TeacherContext
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training import TrainConfig
from agentgym_tok.learner.training.run_folder import RunFolder
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.policies import load_policy
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.trace import Episode, TraceStore, rows, verify

BANK = Path(__file__).with_name("bank.json")
SKILLS = {"bank": str(BANK), "retrieval": "ucb"}
SDAR = {"objective": "sdar", "skills": SKILLS, "steps": 4, "evaluation": TESTS}


class Stop(Exception):
    """What a test stops a run with."""


def of(warm: Path, config: TrainConfig = CONFIG, policy: type[HFPolicy] = HFPolicy) -> dict[str, Any]:
    """Return the parts of a training that begins with the warm model."""
    return {
        "config": config,
        "policy": policy(warm, CHAT, device="cpu", batch_size=1),
        "learner": TorchLearner(warm, CHAT, config.loss, config.learner),
    }


def rollouts(folder: Path, shard: str | None = "main") -> dict[tuple[str, int], Any]:
    """Return what was drawn in rollouts that have ended, and by which weights, by their places in the run."""
    with TraceStore(folder, shard=shard, mode="r") as store:
        return {
            (episode.group_id, episode.head.replica): [
                (turn.completion.ids_T.tolist(), turn.completion.weight_versions, turn.completion.logprobs_T.tolist())
                for turn in episode.turns
                if turn.completion.logprobs_T is not None
            ]
            for episode in store.episodes()
            if episode.status == "done"
        }


def episodes(folder: Path, shard: str) -> list[Episode]:
    with TraceStore(folder, shard=shard, mode="r") as store:
        return [*store.episodes()]


def figures(folder: Path) -> list[dict[str, Any]]:
    """Return the figures of a run, without what depends on the clock."""
    lines = RunFolder(folder).read_figures()
    return [{name: value for name, value in line.items() if not _is_time(name)} for line in lines]


def _is_time(name: str) -> bool:
    return name.startswith("time/") or "seconds" in name or "per_second" in name


def test_success_rises_far_beyond_chance(tmp_path: Path, warm: Path) -> None:
    tests = TESTS.model_dump() | {"every": 20, "first": True, "episodes": 8}
    config = changed(steps=20, evaluation=tests, learner={"device": "cpu", "learning_rate": 1.5e-3})
    training(tmp_path / "run", **of(warm, config)).run()
    lines = figures(tmp_path / "run")
    played = [line["rollouts/success"] for line in lines[1:]]
    first, last = sum(played[:4]) / 4, sum(played[-4:]) / 4  # of 64 rollouts each
    deviation = math.sqrt((first * (1 - first) + last * (1 - last)) / 64)
    assert last - first > 4 * deviation
    assert (first < 0.6, last > 0.9) == (True, True)
    assert lines[-1]["evaluation/success"] == 1 > lines[0]["evaluation/success"]
    assert [line["episodes"] for line in lines] == [16 * step for step in range(21)]


def test_a_run_stands_in_its_trace_and_every_token_names_its_weights(tmp_path: Path, warm: Path) -> None:
    config = changed(evaluation=TESTS)
    found = training(tmp_path / "run", **of(warm, config)).run()
    assert verify(tmp_path / "run").ok
    versions = [
        {version for turn in turns for version, _, _ in turn[1]} for turns in rollouts(tmp_path / "run").values()
    ]
    assert versions == [{str(step)} for step in range(3) for _ in range(16)]
    tested = rollouts(tmp_path / "run", "evaluation").values()
    assert [turns[0][1][0][0] for turns in tested] == ["2"] * 4
    # The learner scores what the engine drew as the engine did: it had the newest weights, and gave its exact ids.
    assert all(line["mismatch/max_gap"] < 1e-4 for line in figures(tmp_path / "run"))
    assert found["staleness/max"] == 0
    with TraceStore(tmp_path / "run", mode="r") as store:
        assert store.meta.config["objective"] == "ppo"
        assert store.meta.source == "TwoButtons"


@pytest.mark.parametrize("lag", [1, 2])
def test_rollouts_lag_as_far_behind_as_is_allowed(tmp_path: Path, warm: Path, lag: int) -> None:
    training(tmp_path / "run", **of(warm, changed(steps=4, staleness=lag))).run()
    versions = [turns[0][1][0][0] for turns in rollouts(tmp_path / "run").values()]
    assert versions == [str(max(0, step - lag)) for step in range(4) for _ in range(16)]
    assert [line["staleness/max"] for line in figures(tmp_path / "run")] == [min(step, lag) for step in range(4)]
    assert all(line["batch/stale"] == 0 for line in figures(tmp_path / "run"))


def test_an_engine_that_lags_gets_the_weights_that_it_was_promised(tmp_path: Path, warm: Path) -> None:
    given: dict[str, float] = {}
    known: dict[str, float] = {}

    class Seen(HFPolicy):
        def update_weights(self, state: Any, version: str) -> None:
            given[version] = float(sum(tensor.double().sum() for tensor in state.values()))
            super().update_weights(state, version)

    parts = of(warm, changed(steps=5, staleness=2), Seen)

    def note(*_: object) -> None:
        state = parts["learner"].weights()
        known[parts["learner"].version] = float(sum(tensor.double().sum() for tensor in state.values()))

    note()
    training(tmp_path / "run", **parts, on_step=note).run()
    assert list(given) == ["0", "1", "2"]
    assert given == {version: known[version] for version in given}


class Counting(Logger):
    """Count rollouts, and stop the run at one of them."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def write(self, found: Mapping[str, float], number: int) -> None:
        """Write nothing."""

    def on_episode(self, episode: Episode) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stop


@pytest.mark.parametrize(("lag", "stopped_at"), [(0, 7), (0, 55), (2, 37)])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path, warm: Path, lag: int, stopped_at: int) -> None:
    config = changed(**SDAR, staleness=lag, save_every=2)
    whole = of(warm, config)
    training(tmp_path / "whole", **whole).run()
    with pytest.raises(Stop):
        training(tmp_path / "run", **of(warm, config), loggers=[Counting(stopped_at)]).run()
    again = of(warm, config)
    training(tmp_path / "run", **again).run(resume=True)
    assert rollouts(tmp_path / "run") == rollouts(tmp_path / "whole")
    assert rollouts(tmp_path / "run", "evaluation") == rollouts(tmp_path / "whole", "evaluation")
    assert figures(tmp_path / "run") == figures(tmp_path / "whole")
    weights = again["learner"].weights()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in whole["learner"].weights().items())
    assert verify(tmp_path / "run").ok


def test_what_was_learned_of_skills_is_in_the_checkpoint(tmp_path: Path, warm: Path) -> None:
    config = changed(**SDAR)
    training(tmp_path / "run", **of(warm, config)).run()
    again = training(tmp_path / "run", **of(warm, config.model_copy(update={"steps": 5})))
    again.run(resume=True)
    assert again._skills is not None
    chosen = [arm.chosen for arms in again._skills.retriever.statistics.arms.values() for arm in arms.values()]  # type: ignore[attr-defined]
    assert sum(chosen) == 5 * 16


@pytest.mark.parametrize("lag", [0, 1])
def test_what_ends_the_process_leaves_nothing_running(tmp_path: Path, warm: Path, lag: int) -> None:
    def interrupt(step: int, _: Mapping[str, float]) -> None:
        if step == 2:
            raise KeyboardInterrupt

    config = changed(steps=8, staleness=lag)
    with pytest.raises(KeyboardInterrupt):
        training(tmp_path / "run", **of(warm, config), on_step=interrupt).run()
    assert "player" not in {thread.name for thread in threading.enumerate()}
    with TraceStore(tmp_path / "run") as store:
        assert store.left_running() == []
    assert len(figures(tmp_path / "run")) == 2
    training(tmp_path / "run", **of(warm, config)).run(resume=True)
    assert [line["step"] for line in figures(tmp_path / "run")] == [*range(1, 9)]


class Broken(HFPolicy):
    """Fail some requests, as an engine does that is overloaded."""

    every = 4

    def generate(self, requests: Sequence[Request], *more: Any) -> list[Completion | Exception]:
        answers = super().generate(requests, *more)
        return [
            TransientPolicyError("overloaded") if request.seed % self.every == 0 else answer
            for request, answer in zip(requests, answers, strict=True)
        ]


class Dead(Broken):
    every = 1


def test_a_failing_engine_costs_its_episodes_alone(tmp_path: Path, warm: Path) -> None:
    training(tmp_path / "run", **of(warm, CONFIG, Broken)).run()
    lines = figures(tmp_path / "run")
    assert all(0 < line["rollouts/failed"] < 0.6 and line["batch/skipped"] == 0 for line in lines)
    assert [line["version"] for line in lines] == ["1", "2", "3"]
    assert verify(tmp_path / "run").ok


def test_a_rollout_that_failed_on_its_way_is_not_trained(tmp_path: Path, warm: Path) -> None:
    class Halfway(HFPolicy):
        def generate(self, requests: Sequence[Request], *more: Any) -> list[Completion | Exception]:
            answers = super().generate(requests, *more)
            later = ["Click." in CHAT.decode(request.ids_T) and request.seed % 2 == 0 for request in requests]
            return [PolicyError("gone") if bad else answer for bad, answer in zip(later, answers, strict=True)]

    def make() -> TokenEnv:
        return TokenEnv(TwoButtons(turns=2), CHAT, max_context=400)

    found = training(tmp_path / "run", **of(warm, changed(steps=1), Halfway), make_env=make).run()
    ended = [episode.status for episode in episodes(tmp_path / "run", "main")]
    assert 0 < ended.count("failed") < 16
    assert found["batch/failed"] == ended.count("failed")
    assert found["batch/rollouts"] == found["rows/trained"] == ended.count("done")


def test_a_dead_engine_stops_the_run_which_goes_on_once_it_is_mended(tmp_path: Path, warm: Path) -> None:
    config = changed(steps=5)
    with pytest.raises(PolicyError, match=r"in 3 steps all rollouts failed.*next: .*--resume"):
        training(tmp_path / "run", **of(warm, config, Dead)).run()
    assert [line["batch/skipped"] for line in figures(tmp_path / "run")] == [1, 1, 1]
    training(tmp_path / "run", **of(warm, config)).run(resume=True)
    assert [line["version"] for line in figures(tmp_path / "run")] == ["0", "0", "0", "1", "2"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_takes_a_step(tmp_path: Path, warm: Path, objective: str) -> None:
    readers = ("student", "evaluation") if objective == "skill_grpo" else ("teacher",)
    skills = SKILLS | {"retrieval": "keyword", "readers": readers}
    teacher = f"hf:{warm}?device=cpu" if objective == "opd" else None
    loss = {"horizon": 16}
    config = changed(objective=objective, steps=1, skills=skills, teacher=teacher, loss=loss, tasks=2, group_size=2)
    parts = of(warm, config)
    before = {name: tensor.clone() for name, tensor in parts["learner"].weights().items()}
    expert = load_policy("expert", CHAT) if objective == "sft" else None
    scorer = None if teacher is None else HFPolicy(warm, CHAT, device="cpu")
    found = training(tmp_path / "run", **parts, expert=expert, teacher=scorer).run()
    assert math.isfinite(found["loss"])
    assert found["batch/rollouts"] == 4
    assert any(not torch.equal(tensor, before[name]) for name, tensor in parts["learner"].weights().items())


@pytest.mark.parametrize(("decay", "left"), [(4, 0.375), (1, 0.0)])
def test_distillation_fades_as_it_is_told_to(tmp_path: Path, warm: Path, decay: int, left: float) -> None:
    config = changed(objective="rlsd", skills={"bank": str(BANK)}, distillation_decay=decay, steps=2)
    parts = of(warm, config)
    found = training(tmp_path / "run", **parts).run()
    assert parts["learner"].loss == OBJECTIVES["rlsd"].model_copy(update={"distillation_coefficient": left})
    assert math.isfinite(found["loss"])


def test_groups_of_equal_returns_are_drawn_again_and_left_out(tmp_path: Path, warm: Path) -> None:
    found = training(tmp_path / "run", **of(warm, changed(steps=1, group_size=2, redraw=3))).run()
    returns: dict[str, set[float]] = {}
    for episode in episodes(tmp_path / "run", "main"):
        returns.setdefault(episode.group_id, set()).add(episode.return_)
    assert len(returns) > CONFIG.tasks
    assert found["batch/rollouts"] == 2 * sum(len(members) == 2 for members in returns.values())
    assert figures(tmp_path / "run")[0]["episodes"] == 2 * len(returns)


def test_demonstrations_come_from_a_run_on_record_and_failures_are_left_out(tmp_path: Path, warm: Path) -> None:
    with TraceStore(tmp_path / "shown", chat=CHAT) as store:
        shown = Harness("random", CHAT, store=store).run_many(make_env, range(8), group_size=2)
    solved = sum(bool(episode.success) for episode in shown)
    assert 0 < solved < 16
    config = changed(objective="sft", steps=2, demonstrations=f"trace:{tmp_path / 'shown'}")
    found = training(tmp_path / "run", **of(warm, config) | {"policy": None}, make_held_out=None).run()
    assert (found["batch/rollouts"], found["batch/unsolved"]) == (solved, 16 - solved)
    lines = figures(tmp_path / "run")
    assert lines[1]["loss"] < lines[0]["loss"]


def test_several_runs_are_imitated_as_one(tmp_path: Path, warm: Path) -> None:
    for name, policy in (("good", "expert"), ("mixed", "random")):
        with TraceStore(tmp_path / name, chat=CHAT) as store:
            Harness(policy, CHAT, store=store).run_many(make_env, range(8))
    runs = f"trace:{tmp_path / 'good'},{tmp_path / 'mixed'}"
    config = changed(objective="sft", steps=2, tasks=8, group_size=1, demonstrations=runs)
    training(tmp_path / "run", **of(warm, config) | {"policy": None}, make_held_out=None).run()
    taken = [line["batch/rollouts"] + line["batch/unsolved"] for line in figures(tmp_path / "run")]
    unsolved = sum(line["batch/unsolved"] for line in figures(tmp_path / "run"))
    missed = sum(not episode.success for episode in episodes(tmp_path / "mixed", "main"))
    assert taken == [8, 8]  # each of the 16 rollouts once
    assert unsolved == missed > 0


def test_students_read_what_a_teacher_would_and_are_tested_without(tmp_path: Path, warm: Path) -> None:
    skills = {"bank": str(BANK), "readers": ("student",)}
    config = changed(objective="skill_grpo", steps=1, skills=skills, evaluation=TESTS.model_dump() | {"every": 1})
    training(tmp_path / "run", **of(warm, config)).run()
    taught = changed(objective="sdar", skills={"bank": str(BANK)})
    store = SkillStore(taught.skills or pytest.fail("no skills"), CHAT, 0)
    plain = {episode.head.task: episode for episode in episodes(tmp_path / "run", "evaluation")}
    assert len(plain) == 4
    for episode in episodes(tmp_path / "run", "main"):
        shown = CHAT.decode(episode.turns[0].context.ids)
        assert "Press the button on the left." in shown
        if episode.head.task in plain:
            without = plain[episode.head.task]
            assert "Press the button" not in CHAT.decode(without.turns[0].context.ids)
            (context,) = store.teach([without], [rows(without)])
            assert isinstance(context, TeacherContext)
            prompt = context.ids_S[: len(context.ids_S) - len(without.turns[0].completion.ids_T)]
            assert prompt.tolist() == episode.turns[0].context.ids.tolist()


def test_skills_grow_from_failures(tmp_path: Path, warm: Path) -> None:
    skills = SKILLS | {"grow_every": 2, "growth": {"threshold": 1.0, "sampling": {"max_tokens": 4}}}
    config = changed(**SDAR | {"skills": skills, "steps": 2})
    found = training(tmp_path / "run", **of(warm, config)).run()
    assert found["skills/asked"] >= 1
    assert found["skills/refused"] >= 1  # this model knows no JSON


def test_the_wrong_parts_are_refused(tmp_path: Path, warm: Path) -> None:
    with pytest.raises(ConfigError, match=r"takes no weights.*got: expert.*expected: hf:.*next: name the trained"):
        training(tmp_path / "a", **of(warm) | {"policy": load_policy("expert", CHAT)}).run()
    with pytest.raises(ConfigError, match="nobody plays"):
        training(tmp_path / "b", **of(warm) | {"policy": None})
    with pytest.raises(ConfigError, match="nobody is imitated"):
        training(tmp_path / "c", **of(warm, changed(objective="sft")))
    with pytest.raises(ConfigError, match="no held-out tasks"):
        training(tmp_path / "d", **of(warm, changed(evaluation=TESTS)), make_held_out=None)


def test_a_folder_holds_one_run(tmp_path: Path, warm: Path) -> None:
    training(tmp_path / "run", **of(warm)).run()
    with pytest.raises(ConfigError, match=r"not empty.*next: choose another"):
        training(tmp_path / "run", **of(warm)).run()
    with pytest.raises(ConfigError, match=r'begun with another objective.*got: "dapo".*expected: "ppo"'):
        training(tmp_path / "run", **of(warm, changed(objective="dapo"))).run(resume=True)
    with pytest.raises(ConfigError, match="no run to go on with"):
        training(tmp_path / "other", **of(warm)).run(resume=True)
