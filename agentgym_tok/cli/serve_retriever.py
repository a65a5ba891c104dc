"""`agentgym-tok serve-retriever CORPUS`: one index for many, by Search-R1's protocol."""

import contextlib
import os
import sys
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from agentgym_tok.config import Config
from agentgym_tok.envs.searchqa.retrieval.corpus import as_corpus
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever, open_retriever
from agentgym_tok.errors import ConfigError

__all__ = ["Options", "run"]


class Options(Config):
    """Serve a corpus at /retrieve (`queries` and `query` forms), with /health and /metrics, until Ctrl-C."""

    corpus: CliPositionalArg[list[str]] = Field(description="JSONL or JSON files, or the folder of a stored corpus")
    retriever: Literal["bm25", "sqlite", "dense"] = Field(default="bm25", description="bm25, sqlite or dense")
    encoder: str | None = Field(default=None, description="dense: folder or id of the model; E5-base-v2 without it")
    index: str | None = Field(default=None, description="dense: a faiss index of this corpus, in this order")
    host: str = Field(default="127.0.0.1", description="address to listen on; others than loopback need a token")
    port: int = Field(default=8000, ge=0, le=65_535, description="port; 0 takes a free one")
    token_variable: str | None = Field(default=None, description="environment variable that holds the token")
    topk: int = Field(default=3, ge=1, description="passages for a query where the request does not say")
    most_waiting: int = Field(default=4096, ge=1, description="queries that may wait; more get status 503")


def run(options: Options) -> int:
    """Prepare the corpus and serve it; return 0.

    Raises:
        DataMissing: A file is not there.
        DataCorrupt: It is no corpus.
        ConfigError: No token where one is needed, the port is taken, or an option is another retriever's.
        MissingExtra: The server's or the retriever's packages are not installed.
    """
    from agentgym_tok.envs.searchqa.retrieval.serve import RetrieverServer  # noqa: PLC0415

    token = _token(options.token_variable)
    with contextlib.closing(_opened(options)) as retriever:
        server = RetrieverServer(
            retriever,
            host=options.host,
            port=options.port,
            token=token,
            topk=options.topk,
            most_waiting=options.most_waiting,
        )
        print(f"{options.retriever} at {server.url} until Ctrl-C")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
    return 0


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise ConfigError("the variable of the token is empty", where="serve-retriever", got=variable)
    return os.environ[variable]


def _opened(options: Options) -> Retriever:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def shown(name: str, done: int, total: int | None) -> None:
            task = bar.task_ids[-1] if bar.task_ids and bar.tasks[-1].description == name else bar.add_task(name)
            bar.update(task, completed=done, total=total)

        corpus = as_corpus(options.corpus, lambda done, total: shown("passages", done, total))
        given = {"encoder": options.encoder, "index": options.index}
        return open_retriever(
            options.retriever,
            corpus=corpus,
            progress=lambda done, total: shown("index", done, total),
            **{name: value for name, value in given.items() if value is not None},
        )
