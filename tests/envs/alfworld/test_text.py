from typing import Any

import pytest

from agentgym_tok.envs.alfworld import text

PLAIN: dict[str, Any] = {
    "inside": None,
    "clean": False,
    "hot": False,
    "cool": False,
    "sliced": False,
    "lit": False,
}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "nothing"),
        (["apple 1"], "a apple 1"),
        (["apple 1", "mug 2"], "a apple 1, and a mug 2"),
        (["apple 1", "mug 2", "pan 1"], "a apple 1, a mug 2, and a pan 1"),
    ],
)
def test_lists_have_the_article_a_and_a_comma_before_and(names: list[str], said: str) -> None:
    assert text.listing(names) == said
    assert text.listing(names, article="") == said.replace("a ", "")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({"inside": [], "clean": True, "hot": True}, "This is a normal egg 1. In it, you see nothing."),
        ({"inside": ["pen 1", "cd 2"]}, "This is a normal egg 1. In it, you see a pen 1, and a cd 2."),
        ({"clean": True, "hot": True, "sliced": True}, "This is a hot and clean sliced egg 1."),
        ({"clean": True, "cool": True, "sliced": True}, "This is a cool and clean sliced egg 1."),
        ({"clean": True, "sliced": True}, "This is a clean sliced egg 1."),
        ({"hot": True, "sliced": True}, "This is a hot sliced egg 1."),
        ({"cool": True, "sliced": True}, "This is a cool sliced egg 1."),
        ({"clean": True, "hot": True}, "This is a hot and clean egg 1."),
        ({"clean": True, "cool": True}, "This is a cool and clean egg 1."),
        ({"hot": True}, "This is a hot egg 1."),
        ({"clean": True}, "This is a clean egg 1."),
        ({"cool": True}, "This is a cold egg 1."),
        ({"lit": True}, "This egg 1 is on."),
        ({"sliced": True}, "This is a sliced egg 1."),
        ({}, "There's nothing special about egg 1."),
    ],
)
def test_a_held_object_is_described_by_the_first_row_that_fits(states: dict[str, Any], said: str) -> None:
    assert text.object_seen("egg 1", **{**PLAIN, **states}) == said


def test_the_help_text_ends_in_a_newline_and_keeps_its_crooked_line() -> None:
    assert text.HELP.startswith("Available commands:\n  look:   ")
    assert "\n  move (object) to (receptacle):  place an object in or on a receptacle\n" in text.HELP
    assert text.HELP.endswith("using a sharp object\n")
    assert len(text.HELP.splitlines()) == 14
