"""JSON is written and read as `json` does, whoever does it, and in ASCII."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.policies.http import json_bytes as module
from agentgym_tok.policies.http.json_bytes import json_bytes, read_json

TEXTS = st.text(st.characters())  # lone surrogates too
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_what_is_written_is_ascii_and_reads_back(document: Any) -> None:
    written = json_bytes(document)
    assert written.isascii()
    assert json.loads(written) == document


@given(DOCUMENTS)
def test_what_json_writes_is_read_as_json_reads_it(document: Any) -> None:
    text = json.dumps(document)
    assert read_json(text) == read_json(text.encode()) == document


def test_arrays_are_lists_with_and_without_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"ids": np.array([1, 2, 3], dtype=np.int32)[1:], "text": "\u2028"}
    for _ in range(2):
        assert json.loads(json_bytes(document)) == {"ids": [2, 3], "text": "\u2028"}
        assert json_bytes(document).isascii()
        assert read_json(b"[1, NaN]")[0] == 1
        monkeypatch.setattr(module, "orjson", None)
    with pytest.raises(TypeError):
        json_bytes({"a": object()})
