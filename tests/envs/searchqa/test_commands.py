"""Commands have one form, and anything else is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.commands import command, read_command


@given(st.sampled_from(["search", "answer"]), st.text(max_size=30))
def test_a_command_is_read_back(verb: str, text: str) -> None:
    assert read_command(command(verb, text)) == (verb, text.strip())


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("search[a]", ("search", "a")),
        ("  Search[ a [b] \n c ] ", ("search", "a [b] \n c")),
        ("answer[]", ("answer", "")),
        ("search[a] answer[b]", ("search", "a] answer[b")),
        ("search a", None),
        ("please search[a]", None),
        ("search[a", None),
        ("find[a]", None),
        ("", None),
    ],
)
def test_only_the_two_forms_are_commands(text: str, asked: tuple[str, str] | None) -> None:
    assert read_command(text) == asked
