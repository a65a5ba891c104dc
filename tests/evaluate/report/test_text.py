"""What people read: nothing hidden in it, and numbers without noise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.evaluate.report.text import file_name, number, one_line, signed, visible


@given(st.text())
def test_nothing_that_hides_or_turns_text_is_left(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & set("\u202e\u2066\u200b\x00\x1b\x7f\u2028\ufeff\U000e0041\u00a0")
    assert visible(shown) == shown
    shown.encode("utf-8")


def test_what_is_hidden_is_spelled_out_and_lines_stay() -> None:
    assert visible("a\u202eb\nc\td\ud800") == "a\u2039U+202E\u203ab\nc    d\u2039U+D800\u203a"
    assert visible("plain \u00e9 \u4e16 \U0001f600") == "plain \u00e9 \u4e16 \U0001f600"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12"),
        (1234567, "1,234,567"),
        (0.12345, "0.123"),
        (1.25, "1.25"),
        (83.333, "83.3"),
        (2415.7, "2,416"),
        (-3, "\u22123"),
    ],
)
def test_numbers_have_the_digits_that_say_something(value: float, text: str) -> None:
    assert number(value) == text


def test_differences_have_a_sign_and_lines_an_end() -> None:
    assert (signed(3.14159), signed(-2.0)) == ("+3.1", "\u22122.0")
    assert one_line("a\n  b", 10) == "a b"
    assert one_line("abcdef", 4) == "abc\u2026"


@given(st.text(), st.lists(st.sampled_from(["run", "RUN", "run-2", "a"])))
def test_a_file_name_is_one_of_its_own_in_this_folder(text: str, taken: list[str]) -> None:
    name = file_name(text, taken)
    assert name
    assert name.lower() not in {each.lower() for each in taken}
    assert not name.startswith(".")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
