"""prime-rl's streams have the length of the ids, and its struct is read by position."""

from dataclasses import replace
from typing import Any

import fixed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.prime_rl import sample_fields


@given(data=st.data())
def test_every_stream_is_the_rows(row_strategy: Any, data: st.DataObject) -> None:
    row = data.draw(row_strategy())
    fields = sample_fields(row, env_name="world")
    mask = np.array(fields["mask"])
    assert fields["token_ids"] == row.ids_T.tolist()
    assert np.array_equal(mask, row.mask_T)
    assert all(isinstance(one, bool) for one in fields["mask"])
    assert np.array_equal(np.array(fields["logprobs"], np.float32)[mask], row.logprobs_T[row.mask_T])
    assert not np.array(fields["logprobs"])[~mask].any()
    assert fields["temperatures"] == row.temperature_T.tolist()
    if row.advantage_T is None:
        assert fields["advantages"] is None
    else:
        assert fields["advantages"] == row.advantage_T.tolist()


def test_a_greedy_token_has_no_temperature_to_divide_by() -> None:
    row = fixed.with_advantages(fixed.simple())[0]
    greedy = replace(row, temperature_T=np.where(row.mask_T, 0, 1).astype(np.float32))
    with pytest.raises(ConfigError, match="greedy"):
        sample_fields(greedy, env_name="world")


def test_the_fields_are_those_of_prime_rls_own_struct(vectors: Any) -> None:
    recorded = vectors("prime_rl")
    assert recorded["version"] == "0.8.0"
    names = [name for name, _, _ in recorded["fields"]]
    required = {name for name, _, is_required in recorded["fields"] if is_required}
    made = fixed.with_advantages(fixed.rich())
    assert len(made) == len(recorded["samples"])
    for row, sample in zip(made, recorded["samples"], strict=True):
        fields = sample_fields(row, env_name="world")
        assert required <= fields.keys() <= set(names)
        held = dict(zip(names, sample, strict=False))
        assert all(held[name] == value for name, value in fields.items())
        assert not any(value for name, value in held.items() if name not in fields)
