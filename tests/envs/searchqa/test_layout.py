"""Passages are written as the published protocols write them, character by character."""

from agentgym_tok.envs.searchqa.layout import LAYOUTS
from agentgym_tok.envs.searchqa.retrieval.passage import Passage

FOUND = [
    Passage("1", "Ann", "Ann built it.\nIn 1901."),
    Passage("2", "", "A text without a title."),
    Passage("3", "Bo", ""),
]


def test_search_r1_puts_the_first_line_into_brackets() -> None:
    assert LAYOUTS["title"](FOUND) == (
        'Doc 1(Title: "Ann") Ann built it.\nIn 1901.\nDoc 2(Title: A text without a title.) \nDoc 3(Title: "Bo")'
    )
    assert LAYOUTS["title"]([]) == ""


def test_verl_agent_writes_the_contents_as_they_are() -> None:
    assert LAYOUTS["contents"](FOUND[:2]) == 'Doc 1: "Ann"\nAnn built it.\nIn 1901.\nDoc 2: A text without a title.'
