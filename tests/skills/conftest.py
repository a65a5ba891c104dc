"""A small bank, and episodes that succeeded or failed."""

from collections.abc import Callable

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.skills import Category, Mistake, Skill, SkillBank
from agentgym_tok.trace import Edge, Episode, EpisodeHead, Status, Turn, sent_digest
from agentgym_tok.types import Completion


def _skill(name: str, principle: str = "") -> Skill:
    return Skill(skill_id=name, title=f"Title of {name}", principle=principle or f"What {name} says.")


@pytest.fixture
def bank() -> SkillBank:
    return SkillBank(
        general_skills=(_skill("gen_001"), _skill("gen_002")),
        categories=(
            Category(name="heat", skills=(_skill("hea_001"),), types=("pick_heat",), keywords=("hot", "heat")),
            Category(name="cool", skills=(_skill("coo_001"), _skill("coo_002")), keywords=("cool", "cold")),
            Category(name="look", skills=(_skill("loo_001"),), keywords=("pan", "look at")),
        ),
        common_mistakes=(
            Mistake(mistake_id="err_001", description="Waiting.", why_it_happens="Why not.", how_to_avoid="Go on."),
            Mistake(mistake_id="err_002", description="Running.", how_to_avoid="Walk."),
        ),
    )


@pytest.fixture
def play(builtin: ChatFormat) -> Callable[..., Episode]:
    """Return what makes an episode: `play("heat/1", success=False)`."""

    def made(
        task: str,
        *,
        success: bool | None,
        id_: str = "",
        steps: int = 2,
        said: str = "You see a mug.",
        status: Status = "done",
    ) -> Episode:
        name = id_ or f"episode of {task}"
        turns = []
        for index in range(steps):
            context = builtin.open([{"role": "user", "content": f"{said} {index}"}])
            turns.append(
                Turn(
                    name,
                    index,
                    context,
                    sent_digest(context.root, context.ids),
                    Completion(builtin.encode_turn(f"act {index}"), origin="demonstration"),
                    Edge("fresh_prompt", index - 1 if index else None, index),
                    action_text=f"act {index}",
                    valid_action=index % 2 == 0,
                    facts={"anchor": f"{said} {index}"},
                )
            )
        return Episode(EpisodeHead(name, task), tuple(turns), status, success)

    return made
