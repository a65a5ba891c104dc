"""Long rollouts lose softly, and groups in which all did alike are found."""

import numpy as np
import pytest
from pydantic import ValidationError

from agentgym_tok.learner import Overlong, informative_groups, overlong_penalty


def test_the_penalty_grows_over_the_buffer_and_stops_at_its_floor() -> None:
    rule = Overlong(max_tokens=20480, buffer=4096)
    found = overlong_penalty([0, 16384, 18432, 20480, 30000], rule)
    assert found.tolist() == [0, 0, -0.5, -1, -1]
    assert np.array_equal(overlong_penalty([18432], rule.model_copy(update={"penalty": 2.0})), [-1.0])
    with pytest.raises(ValidationError):
        Overlong(max_tokens=10, buffer=0)


def test_groups_without_a_difference_are_left_out() -> None:
    returns = {"all won": {"a": 1.0, "b": 1.0}, "mixed": {"c": 1.0, "d": 0.0}, "alone": {"e": 1.0}}
    assert informative_groups(returns) == ["mixed"]
