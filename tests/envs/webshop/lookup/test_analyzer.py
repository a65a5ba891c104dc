import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop.lookup.analyzer import STOP_WORDS, analyze


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Women's shoes, women\u2019s & WOMEN'S", ["women", "shoe", "women", "women"]),
        ("o'neil's don't 's", ["o'neil", "don't", "s"]),
        ("3.5x 1,234.99 ab:cd a.b.c foo_bar x-large", ["3.5x", "1,234.99", "ab:cd", "a.b.c", "foo_bar", "x", "larg"]),
        ("★ ✿ ✓ ✦ ❀ _ ★★ ™ 👍", ["★", "★", "★", "™", "👍"]),
        ("the lamp and THE Desk of it", ["lamp", "desk"]),
        ("café größe", ["café", "größe"]),
        ("日本 コーヒー", ["日", "本", "コーヒー"]),
        ("", []),
        (" \t\n!?… ", []),
        ("two\nlines\tand tabs", ["two", "line", "tab"]),
        ("x" * 600, ["x" * 255, "x" * 255, "x" * 90]),
        ("running us technology", ["run", "us", "technolog"]),
        ("\ud800", []),
    ],
)
def test_texts_have_the_terms_of_lucene(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_there_are_thirty_three_stop_words_and_none_is_a_term() -> None:
    assert len(STOP_WORDS) == 33
    assert analyze(" ".join(sorted(STOP_WORDS))) == []
    # They are dropped before words are stemmed: "ares" is none, though its stem is.
    assert analyze("ares") == ["ar"]


@given(st.lists(st.text(alphabet="ab'\u2019.,:_1 ★é\n", max_size=8), max_size=6))
def test_words_between_blanks_are_analyzed_one_by_one(texts: list[str]) -> None:
    assert analyze(" ".join(texts)) == [term for text in texts for term in analyze(text)]
