"""A passage's contents say its title and text, and are read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.retrieval.passage import Passage, split_contents


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Ada"\nFirst.\nSecond.', "Ada", "First.\nSecond."),
        ("Ada\nFirst.", "Ada", "First."),
        ("Only a text.", "", "Only a text."),
        ('"Only a title"', "Only a title", ""),
        ('"', "", '"'),
        ('"A" or "B"\nBoth.', 'A" or "B', "Both."),
        ("", "", ""),
    ],
)
def test_the_first_line_is_the_title(contents: str, title: str, text: str) -> None:
    assert split_contents(contents) == (title, text)


@given(st.text(st.characters(exclude_characters="\n"), min_size=1), st.text())
def test_contents_of_a_passage_with_a_title_are_read_back(title: str, text: str) -> None:
    assert split_contents(Passage("1", title, text).contents) == (title, text)
