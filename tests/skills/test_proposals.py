"""What a model says is read wherever it can be, and refused with a reason where not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.skills import Refused, Skill
from agentgym_tok.skills.proposals import judge, parse_proposals, similar

ONE = {"title": "Open first", "principle": "Open the drawer before you look for a pen.", "when_to_apply": "always"}
TWO = {"title": "Go on", "principle": "Leave places that are empty."}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ONE, TWO]),
        f"Here they are:\n```json\n{json.dumps([ONE, TWO], indent=2)}\n```\nThat is all [1].",
        json.dumps({"new_skills": [ONE, TWO]}),
        f"{json.dumps(ONE)}\nand\n{json.dumps(TWO)}",
        f'[{json.dumps(ONE)}, {json.dumps(TWO)}, {{"title": "broken o',
        f"[{json.dumps(ONE)}, {json.dumps(TWO)},]",
        f"{{broken [ {json.dumps([ONE, TWO])}",
    ],
)
def test_skills_are_found_in_prose_fences_lists_and_what_breaks_off(text: str) -> None:
    assert parse_proposals(text) == [ONE, TWO]


@pytest.mark.parametrize("text", ["", "no", "[1, 2]", "[" * 5000, "{" * 5000, '{"a": 1}', "[[[]]]", '"principle"'])
def test_where_there_is_no_skill_there_is_nothing(text: str) -> None:
    assert parse_proposals(text) == []


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["title", "principle", "when_to_apply", "x"]), inner)
    ),
)


@given(st.text() | _JSON.map(json.dumps))
def test_nothing_that_is_said_is_an_error(text: str) -> None:
    for proposal in parse_proposals(text):
        assert isinstance(judge(proposal, "dyn_001", (), ()), Skill | Refused)


def test_a_good_proposal_becomes_a_skill_with_its_provenance() -> None:
    skill = judge({**ONE, "skill_id": "mine", "confidence": 1}, "dyn_004", ["e1", "e2"], [])
    assert skill == Skill(skill_id="dyn_004", **ONE, episodes=("e1", "e2"))


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        ({"title": "T"}, "principle"),
        ({"principle": "P"}, "title"),
        ({"title": "T", "principle": ["a"]}, "principle"),
        ({"title": "T", "principle": " \n"}, "no words"),
        ({"title": "T" * 200, "principle": "P"}, "title"),
        ({"title": "T", "principle": "P" * 900}, "principle"),
        ({"title": "open, FIRST!", "principle": "Something else."}, "what known says"),
        ({"title": "T", "principle": "open the Drawer before you look, for a pen"}, "what known says"),
    ],
)
def test_other_proposals_are_refused_with_a_reason(proposal: dict[str, Any], reason: str) -> None:
    got = judge(proposal, "dyn_001", (), [Skill(skill_id="known", **ONE)])
    assert isinstance(got, Refused)
    assert reason in got.reason
    assert got.said


def test_skills_are_alike_by_title_or_by_four_of_five_words() -> None:
    a = Skill(skill_id="a", title="A", principle="one two three four five")
    assert similar(a, Skill(skill_id="b", title="B", principle="five four three two"))
    assert not similar(a, Skill(skill_id="b", title="B", principle="five four three"))
    assert similar(a, Skill(skill_id="b", title="a", principle="nothing"))
    untitled = Skill(skill_id="c", principle="!")
    assert not similar(untitled, Skill(skill_id="d", principle="?"))
