"""Scores as the published functions give them, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.scoring import (
    FormatScores,
    answer_in,
    exact_match,
    format_reward,
    keeps_form,
    normalize_answer,
    substring_match,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles!", "beatles"),
        ("  A   red\tan the\nfox ", "red fox"),
        ("U.S.A.", "usa"),
        ("it's", "its"),
        ("1,234", "1234"),
        ("theory of an-swers", "theory of answers"),
        ("São Paulo", "são paulo"),
        ("“quoted”", "“quoted”"),
        ("a", ""),
        ("a.b the", "ab"),
        ("", ""),
    ],
)
def test_answers_are_normalised_as_squad_does(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal
    assert normalize_answer(normal) == normal


@pytest.mark.parametrize(
    ("answer", "golds", "em", "subem", "f1"),
    [
        ("the Titan IIIE.", ["Titan IIIE"], 1, 1, 1.0),
        ("Titan", ["Titan IIIE"], 0, 0, 2 / 3),
        ("It was the Titan IIIE rocket", ["Titan IIIE"], 0, 1, 4 / 7),
        ("b", ["a x", "b"], 1, 1, 1.0),
        ("x y y", ["y y z"], 0, 0, 2 / 3),
        ("yes", ["no"], 0, 0, 0.0),
        ("yes it is", ["yes"], 0, 1, 0.0),
        ("no", ["no"], 1, 1, 1.0),
        ("", ["x"], 0, 0, 0.0),
        ("the", ["a"], 1, 1, 1.0),
        ("x", [], 0, 0, 0.0),
    ],
)
def test_an_answer_is_scored(answer: str, golds: list[str], em: float, subem: float, f1: float) -> None:
    assert exact_match(answer, golds) == em
    assert substring_match(answer, golds) == subem
    assert token_f1(answer, golds) == pytest.approx(f1)


@given(st.text(max_size=30), st.text(max_size=30))
def test_scores_keep_their_order(answer: str, gold: str) -> None:
    em, subem, f1 = exact_match(answer, [gold]), substring_match(answer, [gold]), token_f1(answer, [gold])
    assert em <= subem
    assert em <= f1 <= 1
    assert token_f1(gold, [answer]) == pytest.approx(f1)
    assert exact_match(f"The {answer}.", [answer]) == exact_match(answer, [answer]) == 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> Beijing </answer>", "Beijing"),
        ("<answer>a</answer> or <answer>\nb\n</answer>", "b"),
        ("<answer>a<answer>b</answer>", "a<answer>b"),
        ("<answer>a", None),
        ("a</answer>", None),
        ("<answer></answer>", ""),
        ("<Answer>a</Answer>", None),
    ],
)
def test_the_last_answer_between_its_tags_counts(text: str, answer: str | None) -> None:
    assert answer_in(text) == answer


WHOLE = (
    "<think>t</think>\n<search>q</search>\n\n<information>Ann did.</information>\n\n"
    "<think>u</think><answer>Ann</answer>"
)
FORMS = [
    pytest.param(WHOLE, True, id="searched"),
    pytest.param("<think>t</think><answer>Ann</answer>", True, id="answered at once"),
    pytest.param("<answer>Ann</answer>", False, id="no thought"),
    pytest.param(WHOLE.removesuffix("</answer>"), False, id="no end"),
    pytest.param(WHOLE + " So.", False, id="words behind"),
    pytest.param(WHOLE.replace("<think>u</think>", ""), False, id="no thought after information"),
    pytest.param(WHOLE.replace("<information>Ann did.</information>", ""), False, id="nothing found"),
    pytest.param(WHOLE.replace("<think>t", "<think><search>x</search>t"), False, id="a tag inside"),
    pytest.param(WHOLE + "<answer>Ann</answer>", False, id="two answers"),
    pytest.param("<think>t</think><search>q</search>", False, id="no answer"),
    pytest.param("", False, id="nothing"),
]


@pytest.mark.parametrize(("text", "kept"), FORMS)
def test_the_form_is_a_sequence_of_tags(text: str, kept: bool) -> None:
    assert keeps_form(text) is kept


@pytest.mark.parametrize(
    ("text", "golds", "reward"),
    [
        (WHOLE, ["ann"], 1.0),
        (WHOLE + " So.", ["ann"], 0.8),
        (WHOLE, ["bo"], 0.2),
        (WHOLE, ["did"], 0.3),
        (WHOLE + " So.", ["bo"], 0.1),
        ("<think>t</think>", ["ann"], 0.0),
        ("<think>t</think><answer></answer>", ["ann"], 0.2),
        (WHOLE.replace("Ann did.", "<answer>Bo</answer>").replace("<answer>Ann", "<answer>Cy"), ["bo"], 0.1),
    ],
)
def test_form_and_answer_make_the_published_reward(text: str, golds: list[str], reward: float) -> None:
    assert format_reward(text, golds, FormatScores()) == pytest.approx(reward)


def test_what_form_is_worth_can_be_set() -> None:
    scores = FormatScores(structure=0.5, retrieval=0.25, final=0.0)
    assert format_reward(WHOLE, ["did"], scores) == 0.75
    assert format_reward(WHOLE + ".", ["Ann"], scores) == 0.5
    assert format_reward(WHOLE, ["An"], scores, substring_match) == 1.0
