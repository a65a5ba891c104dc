"""Questions with their answers, and the files that they come in."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from agentgym_tok.errors import DataCorrupt, DataMissing, unknown_name

__all__ = ["DATASETS", "Question", "question_files", "read_questions"]

DATASETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
"""The seven datasets that papers report, in their order (Jin et al. 2025)."""

_OTHER_NAMES = {"2wiki": "2wikimultihopqa"}
_EXPECTED = (
    '{"question", "golden_answers" or "answer"} with a dataset, as Search-R1, FlashRAG, MuSiQue or HotpotQA have it'
)


@dataclass(frozen=True, slots=True)
class Question:
    """Hold one question.

    Args:
        id: Its id, with the name of its dataset before it: `nq/test_0`.
        text: What is asked.
        answers: Gold answers; any of them is right.
        dataset: Where it comes from.
        titles: Titles of the gold passages, where they are known.
        queries: What the world's own expert would search for, one query for each title; empty where it knows no way.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    dataset: str
    titles: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


def question_files(data: str | Path, split: str, dataset: str | None = None) -> list[Path]:
    """Return the files that hold a split.

    Args:
        data: A file of questions, or a folder: `SPLIT.parquet`, `.jsonl` or `.json` in it (Search-R1), or one such file
            in each of its folders (FlashRAG).
        split: Such as `train`, `dev` or `test`.
        dataset: Only the folder of this name, where the folders are datasets.

    Raises:
        DataMissing: Nothing of this split is there.
    """
    place = Path(data)
    if place.is_file():
        return [place]
    for folders in ([place], sorted(place.glob(dataset or "*"))):
        names = [folder / f"{split}.{kind}" for folder in folders for kind in ("parquet", "jsonl", "json")]
        if found := [name for name in names if name.is_file()]:
            return found
    raise DataMissing(
        "no questions of this split",
        where=place,
        expected=f"a file, or a folder that holds {split}.parquet, {split}.jsonl or DATASET/{split}.jsonl",
        fix="check data= and split=",
    )


def read_questions(files: Iterable[str | Path], dataset: str | None = None) -> list[Question]:
    """Read questions of any of the published forms.

    These are the rows of Search-R1 and FlashRAG (`.parquet`, extra `parquet`, or JSONL), NQ-open's JSONL, the JSON of
    HotpotQA, 2WikiMultihopQA and MuSiQue, and lists of `Question`, `answer`, `id` and `source`. A file whose name ends
    in `.json` holds one list; any other but Parquet one row in each line.

    Args:
        files: Paths; pooled in this order.
        dataset: Keep this dataset only; rows that do not say where they come from are taken to be of it.

    Raises:
        DataMissing: A file is not there.
        DataCorrupt: A row is no question, two have the same id, or nobody says its dataset; file and row are named.
        UnknownName: There are no questions of this dataset.
        MissingExtra: A Parquet file needs pyarrow.
    """
    wanted = None if dataset is None else _name(dataset)
    found: dict[str, Question] = {}
    names: dict[str, None] = {}
    for number, (place, row) in enumerate(chain.from_iterable(_rows(Path(file)) for file in files)):
        try:
            question = _question(row, number, place, wanted)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise DataCorrupt("not a question", where=place, got=_kinds(row), expected=_EXPECTED) from error
        names[question.dataset] = None
        if wanted not in {None, question.dataset}:
            continue
        if question.id in found:
            raise DataCorrupt(
                "two questions have the same id", where=place, got=repr(question.id), expected="unique ids"
            )
        found[question.id] = question
    if not found and wanted is not None and names:
        raise unknown_name("dataset", wanted, names, where="questions")
    return list(found.values())


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        if file.suffix == ".parquet":
            yield from ((f"{file}, row {number}", row) for number, row in enumerate(_parquet(file)))
        elif file.suffix == ".json":
            whole = _parsed(file.read_text(encoding="utf-8"), str(file))
            if not isinstance(whole, list):
                raise DataCorrupt("not a list of questions", where=file, got=type(whole).__name__, expected="a list")
            yield from ((f"{file}, row {number}", row) for number, row in enumerate(whole))
        else:
            with file.open(encoding="utf-8") as stream:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        yield (place := f"{file}, line {number}"), _parsed(line, place)
    except FileNotFoundError as error:
        raise DataMissing("the questions are not there", where=file, fix="check the path") from error
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise DataCorrupt("no text file", where=file, got=str(error), expected="JSON, JSONL or Parquet") from error


def _parquet(file: Path) -> Iterator[dict[str, Any]]:
    from agentgym_tok.trace.exchange.arrow_schema import pyarrow  # noqa: PLC0415  # extra `parquet`

    arrow = pyarrow()
    try:
        with arrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise DataCorrupt("no Parquet file", where=file, got=str(error)) from error


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataCorrupt("not JSON", where=place, got=str(error), expected=_EXPECTED) from error


def _question(row: Any, number: int, place: str, dataset: str | None) -> Question:
    if not isinstance(row, Mapping):
        raise DataCorrupt("not a question", where=place, got=type(row).__name__, expected=_EXPECTED)
    text = row.get("question") or row.get("Question")
    answers = _answers(row)
    if not isinstance(text, str) or not text.strip() or not answers:
        raise DataCorrupt("not a question", where=place, got=_kinds(row), expected=_EXPECTED)
    name = _dataset(row) or dataset
    if name is None:
        raise DataCorrupt(
            "nobody says which dataset this is", where=place, got=_kinds(row), fix='pass dataset="nq", ...'
        )
    return Question(f"{name}/{_id(row, number)}", text.strip(), answers, name, _titles(row))


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the gold answers; none where they are no texts."""
    given = row.get("golden_answers")
    if given is None:
        truth = (row.get("reward_model") or {}).get("ground_truth")
        given = truth.get("target") if isinstance(truth, Mapping) else truth
    if given is None:
        given = row.get("answer")
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not all(isinstance(answer, str) for answer in listed):
        return ()
    return tuple(dict.fromkeys([*listed, *(row.get("answer_aliases") or ())]))


def _dataset(row: Mapping[str, Any]) -> str | None:
    """Return the dataset that a row names, or that only its form can come from."""
    named = row.get("data_source") or row.get("source")
    if isinstance(named, str):
        return _name(named)
    if "paragraphs" in row:
        return "musique"
    if "supporting_facts" in row:
        return "2wikimultihopqa" if "evidences" in row else "hotpotqa"
    return None


def _name(dataset: str) -> str:
    # verl's copies of the data say where the rows were prepared, too.
    name = dataset.removeprefix("searchR1_").lower()
    return _OTHER_NAMES.get(name, name)


def _id(row: Mapping[str, Any], number: int) -> str:
    for key in ("id", "_id"):
        if isinstance(row.get(key), str | int):
            return str(row[key])
    extra = row.get("extra_info")
    return f"{extra.get('split')}_{extra.get('index')}" if isinstance(extra, Mapping) else str(number)


def _titles(row: Mapping[str, Any]) -> tuple[str, ...]:
    facts = row.get("supporting_facts") or (row.get("metadata") or {}).get("supporting_facts")
    if isinstance(facts, Mapping):  # FlashRAG turns rows into columns
        titles = facts.get("title") or ()
    elif facts:
        titles = [fact[0] for fact in facts]
    else:
        titles = [part["title"] for part in row.get("paragraphs") or () if part.get("is_supporting")]
    return tuple(dict.fromkeys(map(str, titles)))


def _kinds(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {type(value).__name__}" for key, value in list(row.items())[:8]) or "nothing"
