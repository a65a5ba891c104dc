"""Tinker's targets are the next ids, and what is said of a target stands beside it."""

from typing import Any

import fixed
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.learner.adapters.tinker import datum_fields


@given(data=st.data())
def test_every_stream_speaks_of_the_token_that_follows(row_strategy: Any, data: st.DataObject) -> None:
    row = data.draw(row_strategy())
    tokens, fields = datum_fields(row, mask=True)
    assert [*tokens, int(fields["target_tokens"][-1])] == row.ids_T.tolist()
    assert {len(tokens)} == {len(field) for field in fields.values()}
    trained = np.flatnonzero(row.mask_T) - 1
    assert np.array_equal(np.flatnonzero(fields["mask"]), trained)
    assert np.array_equal(fields["target_tokens"][trained], row.ids_T[row.mask_T])
    assert np.array_equal(fields["logprobs"][trained], row.logprobs_T[row.mask_T])
    assert fields["logprobs"].sum(dtype=float) == row.logprobs_T[row.mask_T].sum(dtype=float)
    if row.advantage_T is None:
        assert "advantages" not in fields
    else:
        assert np.array_equal(fields["advantages"][trained], row.advantage_T[row.mask_T])
        assert not np.delete(fields["advantages"], trained).any()
    assert fields["target_tokens"].dtype == np.int64
    assert {fields[name].dtype for name in fields if name != "target_tokens"} == {np.dtype(np.float32)}


def test_the_services_losses_get_no_mask_unless_it_is_asked_for() -> None:
    row = fixed.with_advantages(fixed.simple())[0]
    assert set(datum_fields(row)[1]) == {"target_tokens", "logprobs", "advantages"}


def test_the_fields_are_those_that_tinkers_own_class_held(vectors: Any) -> None:
    recorded = vectors("tinker")
    assert recorded["version"] == "0.38.0"
    made = fixed.with_advantages(fixed.rich())
    assert len(recorded["data"]) == len(made) == 6
    for row, held in zip(made, recorded["data"], strict=True):
        tokens, fields = datum_fields(row, mask=True)
        assert held["model_input"] == tokens
        assert held["length"] == len(tokens)
        assert held["loss_fn_inputs"].keys() == fields.keys()
        for name, field in fields.items():
            kept = held["loss_fn_inputs"][name]
            assert (kept["dtype"], kept["shape"], kept["values"]) == (str(field.dtype), [len(field)], field.tolist())
