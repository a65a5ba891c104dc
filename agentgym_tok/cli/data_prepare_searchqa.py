"""`agentgym-tok data prepare searchqa`: questions checked, and a corpus stored and indexed."""

from typing import Literal

from pydantic import Field
from rich.table import Table

from agentgym_tok.cli.progress import Amounts
from agentgym_tok.cli.terminal import show
from agentgym_tok.config import Config
from agentgym_tok.envs.searchqa.questions import DATASETS, Question, read_questions
from agentgym_tok.envs.searchqa.retrieval.corpus import as_corpus
from agentgym_tok.envs.searchqa.retrieval.retriever import open_retriever
from agentgym_tok.errors import ConfigError

__all__ = ["Options", "run"]


class Options(Config):
    """Check files of questions, and store and index a corpus; the files stay as they are, and are not stored twice."""

    questions: list[str] = Field(default=[], description="Parquet, JSONL or JSON of any published form")
    dataset: str | None = Field(default=None, description="one dataset only; needed where rows do not name theirs")
    corpus: list[str] = Field(default=[], description="JSONL with id and contents, or title and text; pooled")
    retriever: Literal["bm25", "sqlite", "dense"] = Field(default="bm25", description="whose index is built")


def run(options: Options) -> int:
    """Prepare, print counts and where the corpus stands; return 0.

    Raises:
        ConfigError: There is nothing to prepare.
        DataMissing: A file is not there.
        DataCorrupt: A row is no question or no passage; file and row are named.
        UnknownName: There are no questions of this dataset.
        MissingExtra: A file or the retriever needs packages that are not installed.
    """
    if not (options.questions or options.corpus):
        raise ConfigError("nothing to prepare", where="data prepare searchqa", fix="pass --questions, --corpus or both")
    if options.questions:
        show(_counts(read_questions(options.questions, options.dataset)))
    if options.corpus:
        with Amounts() as amounts:
            corpus = as_corpus(options.corpus, lambda done, total: amounts.show("passages", done, total))
            open_retriever(
                options.retriever, corpus=corpus, progress=lambda done, total: amounts.show("index", done, total)
            ).close()
        print(f"{len(corpus):,} passages, indexed by {options.retriever}\ncorpus={corpus.folder}")
    return 0


def _counts(questions: list[Question]) -> Table:
    table = Table(title="questions", title_justify="left")
    table.add_column("dataset")
    for heading in ("n", "with gold passages"):
        table.add_column(heading, justify="right")
    names = dict.fromkeys(question.dataset for question in questions)
    for name in sorted(names, key=lambda name: DATASETS.index(name) if name in DATASETS else len(DATASETS)):
        own = [question for question in questions if question.dataset == name]
        table.add_row(name, f"{len(own):,}", f"{sum(bool(question.titles) for question in own):,}")
    return table
