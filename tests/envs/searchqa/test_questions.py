"""Questions of every published form are read, and a bad row is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.searchqa.questions import DATASETS, Question, question_files, read_questions
from agentgym_tok.errors import AgentGymTokError, DataCorrupt, DataMissing, UnknownName

SEARCH_R1 = {
    "id": "test_0",
    "question": "who wrote it",
    "golden_answers": ["Ann", "A. Lee"],
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "..."}],
    "ability": "fact-reasoning",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann", "A. Lee"]}},
    "extra_info": {"split": "test", "index": 0},
}
WITHOUT_ANSWERS = {key: value for key, value in SEARCH_R1.items() if key not in {"golden_answers", "id"}}
FLASHRAG = {
    "id": "dev_7",
    "question": "who?",
    "golden_answers": ["Ann"],
    "metadata": {"supporting_facts": {"title": ["Holm", "Ann", "Holm"], "sent_id": [0, 1, 2]}},
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ann",
    "answer_aliases": ["A. Lee"],
    "paragraphs": [
        {"title": "Holm", "paragraph_text": "...", "is_supporting": True},
        {"title": "Elsewhere", "paragraph_text": "...", "is_supporting": False},
        {"title": "Ann", "paragraph_text": "...", "is_supporting": True},
    ],
}
HOTPOT = {"_id": "5a7", "question": "Who?", "answer": "Ann", "supporting_facts": [["Holm", 0], ["Ann", 1], ["Holm", 2]]}
LISTED = {"Question": "Who?", "answer": ["Ann"], "id": "2wiki_1", "source": "2wiki"}
VERL = {**WITHOUT_ANSWERS, "data_source": "searchR1_popqa"}
BARE = {"question": "who?", "answer": ["Ann", "A. Lee"]}

FORMS = [
    pytest.param(SEARCH_R1, None, Question("nq/test_0", "who wrote it", ("Ann", "A. Lee"), "nq"), id="search_r1"),
    pytest.param(VERL, None, Question("popqa/test_0", "who wrote it", ("Ann", "A. Lee"), "popqa"), id="verl"),
    pytest.param(
        FLASHRAG, "hotpotqa", Question("hotpotqa/dev_7", "who?", ("Ann",), "hotpotqa", ("Holm", "Ann")), id="flashrag"
    ),
    pytest.param(
        MUSIQUE,
        None,
        Question("musique/2hop__1_2", "Who?", ("Ann", "A. Lee"), "musique", ("Holm", "Ann")),
        id="musique",
    ),
    pytest.param(HOTPOT, None, Question("hotpotqa/5a7", "Who?", ("Ann",), "hotpotqa", ("Holm", "Ann")), id="hotpotqa"),
    pytest.param(
        {**HOTPOT, "evidences": []},
        None,
        Question("2wikimultihopqa/5a7", "Who?", ("Ann",), "2wikimultihopqa", ("Holm", "Ann")),
        id="2wiki",
    ),
    pytest.param(LISTED, None, Question("2wikimultihopqa/2wiki_1", "Who?", ("Ann",), "2wikimultihopqa"), id="listed"),
    pytest.param(BARE, "nq", Question("nq/0", "who?", ("Ann", "A. Lee"), "nq"), id="nq open"),
]


def write(file: Path, rows: list[Any]) -> Path:
    if file.suffix == ".json":
        file.write_text(json.dumps(rows), encoding="utf-8")
    elif file.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), file)
    else:
        file.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
@pytest.mark.parametrize(("row", "dataset", "question"), FORMS)
def test_every_published_form_is_read(
    tmp_path: Path, kind: str, row: dict[str, Any], dataset: str | None, question: Question
) -> None:
    if kind == "parquet" and "supporting_facts" in row:
        pytest.skip("a list of a text and a number is no column")
    assert read_questions([write(tmp_path / f"test.{kind}", [row])], dataset) == [question]


def test_files_are_pooled_and_a_dataset_is_chosen(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.jsonl", [SEARCH_R1, {**SEARCH_R1, "data_source": "popqa"}]),
        write(tmp_path / "b.json", [MUSIQUE]),
    ]
    assert [question.dataset for question in read_questions(files)] == ["nq", "popqa", "musique"]
    assert [question.id for question in read_questions(files, "musique")] == ["musique/2hop__1_2"]
    with pytest.raises(UnknownName, match="did you mean musique"):
        read_questions(files, "musik")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "got: list"),
        ({}, "got: nothing"),
        ({**SEARCH_R1, "question": ""}, "question: str"),
        ({**SEARCH_R1, "question": 7}, "question: int"),
        ({**SEARCH_R1, "golden_answers": []}, "golden_answers: list"),
        ({**SEARCH_R1, "golden_answers": [1]}, "golden_answers: list"),
        ({**WITHOUT_ANSWERS, "reward_model": "rule"}, "reward_model: str"),
        ({**MUSIQUE, "paragraphs": [1]}, "paragraphs: list"),
        ({**MUSIQUE, "paragraphs": 3}, "paragraphs: int"),
        ({**HOTPOT, "supporting_facts": [1]}, "supporting_facts: list"),
        ({**MUSIQUE, "answer_aliases": 3}, "answer_aliases: int"),
        (BARE, 'dataset="nq"'),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: Any, words: str) -> None:
    for kind, place in (("jsonl", "line 2"), ("json", "row 1")):
        file = write(tmp_path / f"test.{kind}", [SEARCH_R1, row])
        with pytest.raises(DataCorrupt) as caught:
            read_questions([file])
        assert f"{file}, {place}" in str(caught.value)
        assert words in str(caught.value)


def test_two_questions_with_one_id_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "test.jsonl", [SEARCH_R1, SEARCH_R1])
    with pytest.raises(DataCorrupt, match=r"same id.*line 2.*nq/test_0"):
        read_questions([file])


@pytest.mark.parametrize(
    ("name", "data", "error", "words"),
    [
        ("test.json", b"{}", DataCorrupt, "not a list"),
        ("test.json", b"[", DataCorrupt, "not JSON"),
        ("test.jsonl", b"{]\n", DataCorrupt, "line 1"),
        ("test.jsonl", b"\xff\xfe", DataCorrupt, "no text file"),
        ("test.parquet", b"PAR1", DataCorrupt, "no Parquet file"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, name: str, data: bytes, error: type[AgentGymTokError], words: str
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        read_questions([tmp_path / name])
    assert name in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "question",
                        "answer",
                        "golden_answers",
                        "id",
                        "source",
                        "data_source",
                        "reward_model",
                        "ground_truth",
                        "target",
                        "paragraphs",
                        "title",
                        "is_supporting",
                        "supporting_facts",
                        "metadata",
                        "extra_info",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=200)
def test_any_json_at_all_is_read_or_refused_by_our_error(row: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder) / "test.jsonl", [row])
        try:
            (question,) = read_questions([file], "nq")
        except (DataCorrupt, UnknownName):
            return
        assert question.text
        assert question.answers


def test_files_of_a_split_are_found(tmp_path: Path) -> None:
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    for folder in (flat, nested / "nq", nested / "popqa"):
        folder.mkdir(parents=True)
        write(folder / "test.jsonl", [SEARCH_R1])
    assert question_files(flat / "test.jsonl", "dev") == [flat / "test.jsonl"]
    assert question_files(flat, "test") == [flat / "test.jsonl"]
    assert question_files(nested, "test") == [nested / "nq" / "test.jsonl", nested / "popqa" / "test.jsonl"]
    assert question_files(nested, "test", "popqa") == [nested / "popqa" / "test.jsonl"]
    for missing in (flat, tmp_path / "none"):
        with pytest.raises(DataMissing, match=r"DATASET/train.jsonl"):
            question_files(missing, "train")
    with pytest.raises(DataMissing, match="not there"):
        read_questions([tmp_path / "none.jsonl"])


@pytest.mark.parametrize(
    ("name", "dataset", "count", "with_titles"),
    [
        ("musique_train.json", None, 100, True),
        ("hotpotqa_train.json", None, 100, True),
        ("musique_sample.json", None, 500, False),
        ("2wiki_sample.json", None, 500, False),
        ("bamboogle_125.json", None, 125, False),
        ("hotpot_dev_v1_simplified.json", "hotpotqa", 7405, False),
        ("NQ-open.dev.jsonl", "nq", 3610, False),
    ],
)
def test_real_files_are_read_unchanged(
    shared: Path, name: str, dataset: str | None, count: int, with_titles: bool
) -> None:
    questions = read_questions([shared / "searchqa" / name], dataset)
    assert len(questions) == count
    assert {question.dataset for question in questions} <= set(DATASETS)
    assert all(bool(question.titles) is with_titles for question in questions)
