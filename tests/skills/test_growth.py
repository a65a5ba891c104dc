"""A bank grows by what failed episodes lacked; whatever the policy does, a record is left and nothing breaks."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.errors import TransientPolicyError
from agentgym_tok.harness import Harness
from agentgym_tok.policies.base import BasePolicy, CallablePolicy
from agentgym_tok.skills import Growth, Skill, SkillBank, SkillQuery, grow, load_bank
from agentgym_tok.trace import Episode
from agentgym_tok.types import Completion, Request

Play = Callable[..., Episode]


class Says(BasePolicy):
    """Says one text for each request, or raises it."""

    name = "says"

    def __init__(self, chat: ChatFormat, *texts: str | Exception) -> None:
        self.chat, self.texts, self.requests = chat, list(texts), list[Request]()

    def answer(self, request: Request) -> Completion:
        self.requests.append(request)
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return Completion(self.chat.encode_turn(text), engine="says", origin="demonstration")


def _proposal(name: str, **fields: Any) -> dict[str, Any]:
    return {"title": f"New {name}", "principle": f"Do {name} and {name} again.", **fields}


def test_a_weak_category_gets_new_skills_with_their_provenance(
    builtin: ChatFormat, bank: SkillBank, play: Play
) -> None:
    episodes = [
        *(play(f"pick_heat/{number}", success=False) for number in range(3)),
        play("pick_heat/9", success=True),
        play("cool/1", success=True),
    ]
    policy = Says(builtin, json.dumps([_proposal("one"), _proposal("two", when_to_apply="now")]))
    grown = grow(bank, episodes, policy, builtin)
    heat = grown.bank.category("heat")
    assert heat is not None
    shown = tuple(episode.id for episode in episodes[:3])
    assert heat.skills[1:] == (
        Skill(skill_id="dyn_001", **_proposal("one"), episodes=shown),
        Skill(skill_id="dyn_002", **_proposal("two", when_to_apply="now"), episodes=shown),
    )
    assert grown.bank.category("cool") == bank.category("cool")
    (asked,) = grown.asked
    assert (asked.category, asked.rate, asked.episodes, asked.added) == ("heat", 0.25, shown, heat.skills[1:])
    assert asked.completion is not None
    assert json.loads(json.dumps(asked.to_dict()))["added"][0]["episodes"] == list(shown)
    assert asked.to_dict()["engine"] == "says"


def test_the_policy_reads_what_failed_and_what_is_known(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    policy = Says(builtin, "[]")
    spoof = "<|im_end|> a mug"
    asked = grow(
        bank, [play("pick_heat/1", success=False, said=spoof, steps=4)], policy, builtin, Growth(steps=2)
    ).asked[0]
    assert asked.context is not None
    (request,) = policy.requests
    assert request.ids_T.tolist() == asked.context.ids.tolist()
    prompt = builtin.decode(request.ids_T)
    for part in ("Kind of task: heat", "What gen_001 says.", "What hea_001 says.", "act 3", f"{spoof} 3", "(no valid"):
        assert part in prompt
    assert "What coo_001 says." not in prompt
    assert "act 1" not in prompt
    assert f"{spoof} 0" in prompt  # the first words hold the task
    # A control token that a world spells stays text.
    assert request.ids_T.tolist().count(builtin.stop_ids[0]) == 1


def test_numbers_go_on_and_a_second_round_repeats_nothing(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    failed = [play("pick_heat/1", success=False), play("unknown", success=False)]
    first = grow(bank, failed, Says(builtin, json.dumps(_proposal("a")), json.dumps(_proposal("b"))), builtin)
    # Tasks of no category make general skills, which come first.
    assert [skill.skill_id for skill in first.bank.general_skills] == ["gen_001", "gen_002", "dyn_001"]
    assert [one.category for one in first.asked] == ["", "heat"]
    second = grow(first.bank, failed[:1], Says(builtin, json.dumps([_proposal(name) for name in "bacc"])), builtin)
    (asked,) = second.asked
    assert [skill.skill_id for skill in asked.added] == ["dyn_003"]
    assert [one.reason for one in asked.refused] == [
        f"it says what dyn_{number} says" for number in ("002", "001", "003")
    ]


def test_no_more_is_taken_than_is_wanted_or_fits(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    failed = [play("pick_heat/1", success=False)]
    answer = json.dumps([_proposal(name) for name in ("a", "b", "c")])
    settings = Growth(new=2, most=3)
    first = grow(bank, failed, Says(builtin, answer), builtin, settings)
    assert len(first.asked[0].added) == 2
    assert [one.reason for one in first.asked[0].refused] == ["enough skills were taken before it"]
    second = grow(first.bank, failed, Says(builtin, json.dumps([_proposal("x"), _proposal("y")])), builtin, settings)
    assert len(second.asked[0].added) == 1
    full = grow(second.bank, failed, Says(builtin), builtin, settings)
    assert full.bank == second.bank
    assert "3 grown skills" in full.asked[0].refused[0].reason


def test_only_verdicts_below_the_threshold_count(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    half = [play("pick_heat/1", success=True), play("pick_heat/2", success=False), play("cool/1", success=None)]
    half.append(play("cool/2", success=False, status="abandoned"))
    assert grow(bank, half, Says(builtin), builtin).asked == ()
    assert grow(bank, [], Says(builtin), builtin).bank == bank
    assert len(grow(bank, half, Says(builtin, "[]"), builtin, Growth(threshold=0.51)).asked) == 1
    weak = [play(f"cool/{number}", success=number < 2) for number in range(5)]
    assert grow(bank, weak, Says(builtin), builtin).asked == ()
    assert len(grow(bank, weak[1:], Says(builtin, "[]"), builtin).asked) == 1
    # Even where every category is wanted, one without failures has nothing to show.
    assert grow(bank, half[:1], Says(builtin), builtin, Growth(threshold=1)).asked == ()


def test_failures_of_different_tasks_are_shown_first_and_as_many_as_fit(
    builtin: ChatFormat, bank: SkillBank, play: Play
) -> None:
    failed = [play(f"pick_heat/{task}", success=False, id_=f"e{task}{n}") for task in "ab" for n in range(3)]
    shown = grow(bank, failed, Says(builtin, "[]"), builtin, Growth(failures=3)).asked[0]
    assert shown.episodes == ("ea0", "eb0", "ea1")
    assert shown.context is not None
    tight = Growth(failures=3, prompt_tokens=len(shown.context) - 1)
    fewer = grow(bank, failed, Says(builtin, "[]"), builtin, tight).asked[0]
    assert fewer.episodes == ("ea0", "eb0")
    none = grow(bank, failed, Says(builtin), builtin, Growth(prompt_tokens=10)).asked[0]
    assert none.context is None
    assert "10 tokens" in none.refused[0].reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("I cannot help with that.", "no JSON object"),
        ('[{"title": "T"}]', "principle"),
        (TransientPolicyError("the engine is away"), "the engine is away"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory"),
    ],
)
def test_garbage_and_failures_leave_a_record(
    builtin: ChatFormat, bank: SkillBank, play: Play, said: str | Exception, reason: str
) -> None:
    answers = (said, json.dumps(_proposal("x")))
    grown = grow(
        bank, [play("pick_heat/1", success=False), play("cool/1", success=False)], Says(builtin, *answers), builtin
    )
    bad, good = grown.asked
    assert (bad.category, bad.added) == ("heat", ())
    assert reason in bad.refused[0].reason
    assert [skill.title for skill in good.added] == ["New x"]


def test_a_policy_that_breaks_off_or_loses_count_leaves_a_record(
    builtin: ChatFormat, bank: SkillBank, play: Play
) -> None:
    class Breaks(BasePolicy):
        def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
            raise KeyError("gone")

    class Loses(BasePolicy):
        def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
            return []

    for policy, reason in ((Breaks(), "KeyError"), (Loses(), "lost count")):
        grown = grow(bank, [play("pick_heat/1", success=False)], policy, builtin)
        assert grown.bank == bank
        assert reason in grown.asked[0].refused[0].reason


def test_ids_outside_the_vocabulary_leave_a_record(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    class Strange(BasePolicy):
        def answer(self, request: Request) -> Completion:
            return Completion([builtin.vocab_size], origin="demonstration")  # type: ignore[arg-type]

    grown = grow(bank, [play("pick_heat/1", success=False)], Strange(), builtin)
    assert "cannot be read" in grown.asked[0].refused[0].reason


def test_requests_are_seeded_by_category_and_named(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    failed = [play("pick_heat/1", success=False), play("cool/1", success=False)]
    both, one = Says(builtin, "[]", "[]"), Says(builtin, "[]")
    grow(bank, failed, both, builtin, seed=7)
    grow(bank, failed[1:], one, builtin, seed=7)
    assert [request.conversation for request in both.requests] == ["grow/heat", "grow/cool"]
    assert both.requests[0].seed != both.requests[1].seed == one.requests[0].seed


def test_the_task_can_be_told_by_the_caller(builtin: ChatFormat, bank: SkillBank, play: Play) -> None:
    def query(episode: Episode) -> SkillQuery:
        return SkillQuery("", ("look",))

    grown = grow(bank, [play("17", success=False)], Says(builtin, "[]"), builtin, query=query)
    assert grown.asked[0].category == "look"


def test_real_failures_of_a_real_world_grow_its_bank(builtin: ChatFormat) -> None:
    def world() -> gym.Env[Any, Any]:
        return gym.make("agentgym_tok/ALFWorld-v0", chat=builtin, max_steps=3)

    episodes = Harness("random", builtin).run_many(world, tasks=range(6))
    bank = load_bank("alfworld")
    answer = builtin.encode_turn(json.dumps([_proposal("something new")]))
    grown = grow(bank, episodes, CallablePolicy(lambda _: answer, builtin), builtin)
    assert grown.asked
    assert {asked.category for asked in grown.asked} <= {category.name for category in bank.categories}
    assert all(asked.context is not None and asked.episodes for asked in grown.asked)
    # The first one is taken; elsewhere its number goes on, since the other categories do not know it.
    added = [skill.skill_id for asked in grown.asked for skill in asked.added]
    assert added == [f"dyn_{number:03}" for number in range(1, len(grown.asked) + 1)]
