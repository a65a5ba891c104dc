"""The models are what transformers makes of their files, and the cases sample what they say."""

from pathlib import Path
from typing import Any

import pytest
from tito_conformance.cases import CASES
from tito_conformance.cases.pairs import JOINS, PAIRS, REAL_IDS
from tito_conformance.cases.shapes import SEARCH, user
from tito_conformance.cases.vocabulary import VOCABULARY
from tito_conformance.models import BUILT, Model
from tito_conformance.rendering import as_engines_read
from tito_conformance.script import Case

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief. "},
    user("Hello.\n"),
    {"role": "assistant", "content": "Hi. ", "reasoning_content": "A greeting.\n"},
    user("Find tea."),
]


def first_pieces(case: Case) -> tuple[str | bytes, ...]:
    """Return what is sampled first, without the stop token."""
    pieces = case.steps[0].reply.pieces
    return pieces[:-1] if pieces[-1] == "<|im_end|>" else pieces


@pytest.mark.parametrize("name", BUILT)
def test_transformers_reads_the_same_model(name: str, models: dict[str, Model], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = models[name]
    loaded = transformers.AutoTokenizer.from_pretrained(model.save(tmp_path))
    for text in ("Say <|im_end|> to café.\n\n", "H AVING", "日本語\0"):
        assert loaded(text, add_special_tokens=False)["input_ids"] == model.encode(text)
        assert loaded(text)["input_ids"] == model.encode(text, special=True)
    assert loaded.eos_token == model.stops[0]
    rendered = model.render(as_engines_read(TALK), [SEARCH])
    if rendered == model.render(as_engines_read(TALK), [SEARCH]):  # else it tells the time
        given = {"tools": [SEARCH], "add_generation_prompt": True, "tokenize": False}
        assert loaded.apply_chat_template(as_engines_read(TALK), **given) == rendered


@pytest.mark.parametrize("name", BUILT)
def test_bytes_of_ids_are_those_of_the_library(name: str, models: dict[str, Model]) -> None:
    model = models[name]
    ids = range(model.backend.get_vocab_size())
    assert [model.spell([index]) for index in ids] == model.chat._tokenizer.token_bytes


@pytest.mark.parametrize("case", [*VOCABULARY, *PAIRS, *JOINS], ids=lambda case: case.name)
def test_pieces_are_other_ids_than_their_text(case: Case, models: dict[str, Model]) -> None:
    model, pieces = models[case.model], first_pieces(case)
    ids = model.sample(pieces)
    again = model.encode(model.spell(ids).decode("utf-8", "replace"))
    if case.title.startswith(("two newlines meet", "joined 'Hi'")):  # it is the prompt that they meet
        prompt = model.encode(model.render(list(case.steps[0].new), case.tools))
        ids, again = [*prompt, *ids], model.encode(model.spell([*prompt, *ids]).decode())
    assert (ids != again) == case.audited


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_real_vocabularies_sample_the_measured_ids(name: str, real_models: dict[str, Model]) -> None:
    model = real_models[name]
    for case in PAIRS:
        ids, expected = model.sample(case.steps[0].reply.pieces), REAL_IDS[case.number]
        assert any(ids[place : place + len(expected)] == expected for place in range(len(ids))), case.title
    assert model.sample([" Pant", "om"]) == [53122, 316]
    assert model.encode(" Pantom") == [393, 30002]


def test_every_case_runs_on_a_model_of_the_suite() -> None:
    assert {case.model for case in CASES} == set(BUILT)
