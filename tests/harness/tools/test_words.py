"""Whatever a tool returns or raises becomes text, of bounded length."""

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentgym_tok.harness.tools.words import error_words, result_words, shorten


class Model(BaseModel):
    day: date


@dataclass
class Pair:
    left: Any
    right: Any


class Shout(enum.StrEnum):
    HI = "hi"


class Liar(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "(no result)"),
        (True, "true"),
        (3, "3"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        ([1, "é", None], '[1, "é", null]'),
        ({"a": (1, 2), 3: 4}, '{"a": [1, 2], "3": 4}'),
        (Model(day=date(2024, 1, 2)), '{"day": "2024-01-02"}'),
        ([Pair(1, Model(day=date(2024, 1, 2)))], '[{"left": 1, "right": {"day": "2024-01-02"}}]'),
        (set("hgfedcba"), '["a", "b", "c", "d", "e", "f", "g", "h"]'),
        ({"s": [frozenset({3, 1, 2})]}, '{"s": [[1, 2, 3]]}'),
        (np.arange(3), "[0, 1, 2]"),
        ({"n": np.float32(0.5), "i": np.int64(2)}, '{"n": 0.5, "i": 2}'),
        (Path("a/b"), '"a/b"'),
        (Shout.HI, "hi"),
        (Liar("x"), "x"),
        (["\ud800"], '["\ud800"]'),
    ],
)
def test_results_become_these_texts(value: Any, text: str) -> None:
    said = result_words(value)
    assert said == text
    assert type(said) is str


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_json_comes_back_equal(value: Any) -> None:
    if not isinstance(value, str | None):
        assert json.loads(result_words(value)) == value


def _endless() -> Iterator[int]:
    yield from count()


def test_what_is_no_json_is_refused_and_never_runs_on() -> None:
    for value in (object(), _endless(), [count()], {(1, 2): 3}, lambda: 1, Pair(object(), 1)):
        with pytest.raises(TypeError):
            result_words(value)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="Circular"):
        result_words(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        result_words(deep)


class Evil(Exception):
    def __str__(self) -> NoReturn:
        raise SystemExit


class Mute(Exception):
    def __str__(self) -> Any:
        return 3  # noqa: PLE0307  # evil on purpose


def test_errors_say_their_name_and_words_and_cannot_refuse_to() -> None:
    assert error_words(ValueError("take less")) == "take less"
    assert error_words(UnicodeError("take less")) == "UnicodeError: take less"
    assert error_words(KeyError("x")) == "KeyError: 'x'"
    assert error_words(OSError()) == "OSError"
    assert error_words(Evil()) == "Evil"
    assert error_words(Mute()) == "Mute"
    assert len(error_words(RuntimeError("x" * 10**8))) <= 1000


@given(st.text(max_size=400), st.integers(100, 300))
def test_a_shortened_text_keeps_its_ends_and_counts_the_gap(text: str, limit: int) -> None:
    short, left_out = shorten(text, limit)
    assert len(short) <= limit
    if not left_out:
        assert short == text
        return
    head, note, tail = short.rpartition(f"\n[... {left_out} characters left out ...]\n")
    assert note
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + left_out == len(text)
