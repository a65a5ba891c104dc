"""Notes stay through an episode, are never more than their room, and end with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools import Notebook

TITLES = st.sampled_from(["", " a ", "a", "b", "long title"])


def test_notes_are_written_read_listed_and_deleted() -> None:
    notebook = Notebook(max_characters=20)
    assert notebook("list") == "There are no notes."
    assert notebook("write", " plan ", "go west") == "Saved 'plan': 7 characters, 9 left."
    assert notebook("write", "plan", "go east!") == "Saved 'plan': 8 characters, 8 left."
    assert notebook("read", "plan") == "go east!"
    assert notebook("write", "b", "") == "Saved 'b': 0 characters, 7 left."
    assert notebook("list") == "The notes are: 'plan', 'b'."
    assert notebook("delete", "plan") == "Deleted 'plan'."
    assert notebook.notes == {"b": ""}


def test_what_cannot_be_done_changes_nothing_and_says_why() -> None:
    notebook = Notebook(max_characters=20)
    notebook("write", "plan", "go west")
    with pytest.raises(ValueError, match="has 17 characters, and 16 are left"):
        notebook("write", "plan", "x" * 17)
    with pytest.raises(ValueError, match="and 0 are left"):
        notebook("write", "x" * 18, "1")
    with pytest.raises(ValueError, match=r"there is no note 'plans'\. The notes are: 'plan'"):
        notebook("read", "plans")
    with pytest.raises(ValueError, match="to delete a note, name its title"):
        notebook("delete", "  ")
    assert notebook.notes == {"plan": "go west"}


@given(st.lists(st.tuples(st.sampled_from(["write", "read", "list", "delete"]), TITLES, st.text(max_size=12))))
def test_it_is_a_dictionary_that_never_outgrows_its_room(steps: list[tuple[str, str, str]]) -> None:
    notebook, expected = Notebook(max_characters=30), dict[str, str]()
    for action, title, text in steps:
        try:
            notebook(action, title, text)  # type: ignore[arg-type]  # drawn from the four
        except ValueError:
            continue
        if action == "write":
            expected[title.strip()] = text
        elif action == "delete":
            del expected[title.strip()]
        assert notebook.notes == expected
        assert sum(len(title) + len(text) for title, text in expected.items()) <= 30


def test_a_fresh_one_is_empty_and_as_large() -> None:
    notebook = Notebook(max_characters=10)
    notebook("write", "a", "1")
    fresh = notebook.fresh()
    assert fresh.notes == {}
    with pytest.raises(ValueError, match="and 9 are left"):
        fresh("write", "a", "x" * 10)
    with pytest.raises(ConfigError):
        Notebook(max_characters=0)
