"""`agentgym-tok bench searchqa`: how fast a retriever answers, and how many gold passages it finds."""

import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from rich.table import Table

from agentgym_tok.cli.figures import load_average, write_figures
from agentgym_tok.cli.terminal import show
from agentgym_tok.config import Config
from agentgym_tok.envs.searchqa import Corpus, Retriever, open_retriever
from agentgym_tok.envs.searchqa.questions import Question, read_questions
from agentgym_tok.envs.searchqa.synth import SPLITS, synth_passages, synth_questions
from agentgym_tok.errors import ConfigError

__all__ = ["Options", "recall", "run"]


class Options(Config):
    """Measure retrievers on the questions themselves as queries, without any policy.

    Recall is the mean share of a question's gold passages, told by their titles, among the first `k`. Without
    `--questions` and `--corpus` the generated world is asked. Seconds are those of the clock.
    """

    questions: list[str] = Field(default=[], description="files of questions; those of the generated world without it")
    corpus: list[str] = Field(default=[], description="files of passages, pooled, or the folder of a stored corpus")
    dataset: str | None = Field(default=None, description="one dataset only; needed where rows do not name theirs")
    retriever: list[str] = Field(default=["bm25"], description="names of retrievers")
    options: dict[str, Any] = Field(default_factory=dict, description="what they take beside the corpus, as JSON")
    k: int = Field(default=5, ge=1, description="passages of one search")
    batch: int = Field(default=64, ge=1, description="queries of one batch")
    seconds: float = Field(default=3.0, gt=0, description="time for each figure")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0.

    Raises:
        ConfigError: Only one of questions and corpus is given.
    """
    questions, corpus = _sources(options)
    table = Table(title=f"{len(questions)} questions, k={options.k}, load {load_average():.1f}", title_justify="left")
    table.add_column("retriever")
    for heading in ("ready, s", "queries/s", f"in batches of {options.batch}"):
        table.add_column(heading, justify="right")
    names = list(dict.fromkeys(question.dataset for question in questions if question.titles))
    for name in names:
        table.add_column(f"recall@{options.k} {name}", justify="right")
    figures: dict[str, dict[str, float]] = {}
    for name in options.retriever:
        found = figures[name] = _measure(name, corpus, questions, names, options)
        table.add_row(name, *(f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}" for figure in found.values()))
    show(table)
    write_figures(options.out, options, {"load": load_average(), "figures": figures})
    return 0


def recall(retriever: Retriever, questions: Sequence[Question], k: int) -> float:
    """Return the mean share of gold titles among the first passages of each question.

    Args:
        retriever: Is asked the questions as they are.
        questions: With gold titles.
        k: How many passages count.
    """
    shares = []
    found = retriever.search([question.text for question in questions], k)
    for question, passages in zip(questions, found, strict=True):
        titles = {passage.title for passage in passages}
        shares.append(sum(title in titles for title in question.titles) / len(question.titles))
    return sum(shares) / len(shares)


def _sources(options: Options) -> tuple[list[Question], Any]:
    if bool(options.questions) != bool(options.corpus):
        raise ConfigError("questions and passages belong together", where="bench searchqa", fix="give both, or none")
    if options.questions:
        return read_questions(options.questions, options.dataset), options.corpus
    return [question for split in SPLITS for question in synth_questions(split)], Corpus.store(synth_passages())


def _measure(
    name: str, corpus: Any, questions: Sequence[Question], datasets: Sequence[str], options: Options
) -> dict[str, float]:
    start = time.perf_counter()
    with_corpus = {} if name in {"http", "wikipedia"} else {"corpus": corpus}
    retriever = open_retriever(name, **with_corpus, **options.options)
    ready = time.perf_counter() - start
    queries = [question.text for question in questions]
    figures = {
        "ready, s": ready,
        "queries/s": _rate(retriever, queries, 1, options),
        "batched queries/s": _rate(retriever, queries, options.batch, options),
    }
    for dataset in datasets:
        golden = [question for question in questions if question.dataset == dataset and question.titles]
        figures[f"recall@{options.k} {dataset}"] = recall(retriever, golden, options.k)
    retriever.close()
    return figures


def _rate(retriever: Retriever, queries: Sequence[str], batch: int, options: Options) -> float:
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < options.seconds:
        place = done % len(queries)
        asked = queries[place : place + batch]
        retriever.search(asked, options.k)
        done += len(asked)
    return done / spent
