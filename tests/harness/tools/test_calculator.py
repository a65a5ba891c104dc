"""The calculator agrees with Python, and nothing makes it hang, grow or warn."""

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym_tok.harness.tools import calculator

NUMBERS = st.integers(0, 10**6).map(str) | st.floats(0, 1e6, allow_nan=False).map(repr) | st.sampled_from(["pi", "e"])
ONE = ["abs", "floor", "ceil", "sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "atan", "asin", "acos"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner).map(
            lambda t: "({} {} {})".format(*t)
        ),
        st.tuples(st.sampled_from("+-"), inner).map(lambda t: "({}{})".format(*t)),
        st.tuples(st.sampled_from(ONE), inner).map(lambda t: "{}({})".format(*t)),
        st.tuples(inner, inner).map(lambda t: "max({}, min({}, 1), 2)".format(*t)),
        st.tuples(inner, st.integers(-3, 3)).map(lambda t: "round({}, {})".format(*t)),
        inner.map(lambda text: f"log({text}, 10)"),
    )


SCOPE: dict[str, Any] = {
    "__builtins__": {},
    **{name: getattr(math, name) for name in [*ONE, "pi", "e"] if name != "abs"},
    **{function.__name__: function for function in (abs, round, min, max)},
}


@given(st.recursive(NUMBERS, _grown, max_leaves=12))
def test_it_agrees_with_python(expression: str) -> None:
    try:
        found = calculator(expression)
    except ValueError as error:
        if "large" in str(error) or "bits" in str(error):
            return  # Python might need hours for it
        with pytest.raises((ValueError, ArithmeticError, TypeError)):  # a complex number on the way, at most
            _real(eval(expression, SCOPE))
        return
    expected = eval(expression, SCOPE)
    assert (type(found), found) == (type(expected), expected)


def _real(value: Any) -> None:
    if isinstance(value, complex) or not math.isfinite(value):
        raise ValueError


@given(st.text() | st.text("0123456789+-*/%.()eE, _sqrtlogminax\n'\"\\[]{}:=#@!~|&^\0", max_size=60))
@example("'\\d'")
@example("1if 2else 3")
@example("0x1for x in y")
@example("1(2)")
@example("1 is 1")
@example("\ud800")
@example("ﬁ")
def test_any_text_at_all_is_a_number_or_a_sentence(text: str) -> None:
    try:
        found = calculator(text)
    except ValueError as error:
        sentence = str(error)
        assert type(error) is ValueError  # noqa: PT017  # a subclass would not be meant for the policy
        assert 0 < len(sentence) < 400
    else:
        assert math.isfinite(found) if isinstance(found, float) else found.bit_length() <= 10_000


@pytest.mark.parametrize(
    "bomb",
    [
        "9**9**9",
        "9**9**9**9**9",
        "(-9)**(9**9)",
        "2**(2**40)",
        "(10**3000)**(10**3000)",
        "*".join(["9**3000"] * 100),
        "factorial(factorial(20))",
        "factorial(10**9)",
        "round(1, -10**9)",
        "round(1, 10**9)",
        "10**400 / 3",
        "10**400 + 0.5",
        "sqrt(10**2000)",
        "log(-(10**2000))",
        "1e308 * 10",
        "exp(1e9)",
        "1" * 1001,
        "(" * 500 + "1" + ")" * 499,
        "(" * 300 + "1" + ")" * 300,
        "1" + "+1" * 10_000,
    ],
)
def test_bombs_are_refused_at_once_and_in_little_memory(bomb: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"large|bits|factorial|round|characters|nested|closed|real"):
            calculator(bomb)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_long_and_deep_expressions_within_the_bounds_are_worked_out() -> None:
    assert calculator("1" + "+1" * 499) == 500
    assert calculator("-" * 998 + "1") == 1
    assert calculator("(" * 150 + "7" + ")" * 150) == 7
    assert calculator("2" + "**1" * 300) == 2
    assert calculator("sqrt(" * 150 + "1" + ")" * 150) == 1
    assert calculator("factorial(1000) // factorial(999)") == 1000
    assert calculator(" 1 +\n 2 ") == 3


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("1/0", "divides by zero"),
        ("2^3", r"2\^3; write \*\* for powers"),
        ("1,234 + 1", "numbers without commas"),
        ("2pi", "write 2 \\* pi"),
        ("2 (3)", "cannot be worked out: 2 \\(3\\)"),
        ("3 ÷ 4", "'÷' is no part"),
        ("__import__('os')", '"\'" is no part'),
        ("open(1)", "'open' is not known; there are abs"),
        ("x + 1", "'x' is not known"),
        ("sqrt + 1", r"write sqrt\(\.\.\.\)"),
        ("pi(2)", r"write pi \* "),
        ("sqrt(1, 2)", "cannot be worked out: sqrt"),
        ("min()", r"cannot be worked out: min\(\)"),
        ("True", "cannot be worked out: True"),
        ("(1).real", "is no number"),
        ("pi.real", "cannot be worked out"),
        ("sqrt(-1)", r"sqrt\(-1\) is no real number"),
        ("(-8) ** 0.5", "no real number"),
        ("factorial(2.0)", "whole number from 0 to 1000"),
        ("", "no arithmetic expression"),
        ("1 +", "no arithmetic expression"),
    ],
)
def test_errors_are_sentences_that_help(expression: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        calculator(expression)
