"""What a teacher reads can be imitated too, and who reads what does not depend on names drawn anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from two_buttons import CHAT, changed, make_env

from agentgym_tok.harness import Harness
from agentgym_tok.learner.teacher import TeacherContext
from agentgym_tok.learner.training import SkillUse
from agentgym_tok.learner.training.batches import Batches, spliced
from agentgym_tok.learner.training.rollouts import Played
from agentgym_tok.learner.training.skill_store import SkillStore
from agentgym_tok.trace import rows

BANK = str(Path(__file__).with_name("bank.json"))


def test_a_spliced_row_trains_the_same_tokens_behind_the_skills() -> None:
    (episode,) = Harness("expert", CHAT).run_many(make_env, [0])
    (row,) = rows(episode, objective="sft")
    context = TeacherContext.of(row, 5, np.array([7, 8, 9], np.int32))
    told = spliced(replace(row, logprobs_T=np.arange(len(row.ids_T), dtype=np.float32)), context)
    assert told.ids_T.tolist() == [*row.ids_T[:5], 7, 8, 9, *row.ids_T[5:]]
    for name in ("turn_T", "temperature_T", "version_T"):
        assert getattr(told, name)[told.mask_T].tolist() == getattr(row, name)[row.mask_T].tolist()
    assert told.logprobs_T[told.mask_T].tolist() == np.flatnonzero(row.mask_T).tolist()
    assert told.ids_T[told.mask_T].tolist() == row.ids_T[row.mask_T].tolist()


def test_demonstrations_are_imitated_without_skills_and_with_them() -> None:
    shown = Harness("expert", CHAT).run_many(make_env, range(3))
    config = changed(objective="sft", skills={"bank": BANK})
    batch, figures = Batches(config, CHAT, SkillStore(SkillUse(bank=BANK), CHAT, 0)).of(Played(shown, shown), {})
    assert batch is not None
    assert figures["batch/rollouts"] == 3
    told = ["Press the button on the left." in CHAT.decode(row.ids_T) for row in batch.rows]
    assert told == [False] * 3 + [True] * 3
    assert len({row.ids_T[row.mask_T].tobytes() for row in batch.rows}) == 1
    plain, _ = Batches(config, CHAT).of(Played(shown, shown), {})
    assert plain is not None
    assert len(plain.rows) == 3


def test_random_skills_are_those_of_the_place_in_the_run() -> None:
    store = SkillStore(SkillUse(bank=BANK, retrieval="random"), CHAT, 3)
    played = [Harness("expert", CHAT).run_many(make_env, range(8), group_size=2) for _ in range(2)]
    assert {episode.id for episode in played[0]}.isdisjoint(episode.id for episode in played[1])
    texts = [[store._retrieve(episode).text for episode in episodes] for episodes in played]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 2
