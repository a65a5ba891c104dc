"""An explorer corrects a student from its trace alone, turn by turn, as it would have said beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from two_buttons import CHAT, changed, training

from agentgym_tok import Completion, Request
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.envs.searchqa import SearchQAEnv
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.envs.webshop import WebShopEnv
from agentgym_tok.errors import ConfigError
from agentgym_tok.harness import Harness
from agentgym_tok.learner.torch_learner import TorchLearner
from agentgym_tok.learner.training.corrections import Corrections
from agentgym_tok.learner.training.models import make_model
from agentgym_tok.policies import load_policy
from agentgym_tok.policies.expert import RandomPolicy
from agentgym_tok.trace import TraceStore, rows

TINY = "new:qwen2?hidden=32&layers=1&heads=2&kv_heads=1"

MAKERS: dict[str, Callable[[], TokenEnv]] = {
    "alfworld": lambda: ALFWorldEnv(CHAT, max_steps=12),
    "alfworld, react": lambda: ALFWorldEnv(CHAT, max_steps=6, prompting="react"),
    "webshop": lambda: WebShopEnv(CHAT, max_steps=6),
    "searchqa": lambda: SearchQAEnv(CHAT, max_steps=4),
}


class Stray(RandomPolicy):
    """Play at random, now and then as nobody may, and note what the explorer beside it says."""

    def __init__(self) -> None:
        super().__init__(CHAT)
        self.said: list[Any] = []

    def answer(self, request: Request) -> Completion:
        assert request.info is not None
        self.said.append(request.info["explorer"])
        if len(self.said) % 3:
            return super().answer(request)
        return Completion(CHAT.encode_turn("I shall open the sky."), engine="stray", sampling=request.sampling)


@pytest.mark.parametrize("world", MAKERS)
def test_what_the_trace_teaches_is_what_the_explorer_said_beside_the_student(world: str, tmp_path: Path) -> None:
    for seed in range(4):
        stray = Stray()
        with TraceStore(tmp_path / str(seed), chat=CHAT) as store:
            Harness(stray, CHAT, store=store).run(MAKERS[world](), seed=seed)
            (episode,) = store.episodes()
        said = [CHAT.encode_turn(turn) for turn in stray.said if turn is not None]
        found = Corrections.of(MAKERS[world]()).rows(episode)
        taught = sorted((int(turn), row.ids_T[row.turn_T == turn].tolist()) for row in found for turn in _turns(row))
        told = [index for index, turn in enumerate(stray.said) if turn is not None]
        assert taught == sorted(zip(told, [ids_T.tolist() for ids_T in said], strict=True))
        for row in found:
            for turn in _turns(row):
                start = int(np.flatnonzero(row.turn_T == turn)[0])
                assert row.ids_T[:start].tolist() == episode.turns[turn].context.ids.tolist()


@pytest.mark.parametrize("world", MAKERS)
def test_who_needs_no_correction_learns_what_it_did(world: str) -> None:
    episode = Harness("explorer", CHAT).run(MAKERS[world](), seed=3)
    pairs = zip(Corrections.of(MAKERS[world]()).rows(episode), rows(episode, objective="sft"), strict=True)
    assert all(
        (mine.ids_T.tolist(), mine.mask_T.tolist()) == (own.ids_T.tolist(), own.mask_T.tolist()) for mine, own in pairs
    )


@pytest.mark.parametrize(("share", "own"), [(0.5, 2), (1.0, 4)])
def test_a_student_plays_its_share_of_the_tasks(tmp_path: Path, share: float, own: int) -> None:
    config = changed(objective="sft", steps=2, tasks=4, group_size=1, student_share=share, demonstrations="explorer")
    model = make_model(TINY, CHAT, tmp_path / "start")
    with_corrections = training(
        tmp_path / "run",
        config,
        policy=load_policy(f"hf:{model}?device=cpu", CHAT),
        learner=TorchLearner(model, CHAT, config.loss, config.learner),
        make_env=lambda: ALFWorldEnv(CHAT, max_steps=3),
        expert=load_policy("explorer", CHAT),
        make_held_out=None,
    )
    figures = with_corrections.run()
    assert figures["batch/corrected"] == own
    assert figures["batch/rollouts"] + figures["batch/unsolved"] == 4 - own
    assert figures["rows/trained"] >= own
    with TraceStore(tmp_path / "run", mode="r") as store:
        origins = [episode.turns[0].completion.origin for episode in store.episodes()]
    assert (origins.count("sampled"), origins.count("demonstration")) == (2 * own, 2 * (4 - own))


def test_a_world_without_an_explorer_corrects_nobody(tmp_path: Path, warm: Path) -> None:
    config = changed(objective="sft", student_share=0.5)
    learner = TorchLearner(warm, CHAT, config.loss, config.learner)
    with pytest.raises(ConfigError, match="no explorer"):
        training(tmp_path, config, policy=load_policy("expert", CHAT), learner=learner, make_held_out=None)
    with pytest.raises(ConfigError, match="in imitation only"):
        changed(student_share=0.5).checked()
    with pytest.raises(ConfigError, match="shortened"):
        Corrections.of(ALFWorldEnv(CHAT, max_observation_tokens=60))


def _turns(row: Any) -> list[int]:
    return sorted({int(turn) for turn in row.turn_T[row.mask_T]})
