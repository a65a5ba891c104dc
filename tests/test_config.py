"""Configuration refuses what it does not know and never changes."""

import pickle

import pytest
from pydantic import ValidationError

from agentgym_tok.config import Config, differences


class Limits(Config):
    steps: int = 5
    rate: float = 0.5


class WrongDefault(Config):
    steps: int = "many"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="stepz"):
        Limits(stepz=3)


def test_a_config_never_changes() -> None:
    limits = Limits()
    with pytest.raises(ValidationError, match="frozen"):
        limits.steps = 3


def test_a_config_is_a_value() -> None:
    limits = Limits(steps=3)
    assert limits == Limits(steps=3) != Limits()
    assert hash(limits) == hash(Limits(steps=3))
    assert pickle.loads(pickle.dumps(limits)) == limits


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), "fast"])
def test_numbers_are_finite(rate: object) -> None:
    with pytest.raises(ValidationError):
        Limits(rate=rate)


def test_defaults_are_checked_too() -> None:
    with pytest.raises(ValidationError):
        WrongDefault()


def test_each_value_that_differs_is_named_by_its_place() -> None:
    first = {"a": 1, "b": {"c": [1, {"d": 2}], "e": 3}, "f": [1]}
    second = {"a": 1, "b": {"c": [1, {"d": 5}]}, "f": [1, 2]}
    assert [*differences(first, second)] == [("b.c.1.d", 2, 5), ("b.e", 3, None), ("f", [1], [1, 2])]
    assert not [*differences(first, first)]
