"""`serve-retriever` prepares a corpus, serves it on loopback, and stops on a signal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from agentgym_tok.cli import serve_retriever
from agentgym_tok.cli.options import parse
from agentgym_tok.envs.searchqa.retrieval.serve import RetrieverServer
from agentgym_tok.errors import ConfigError, DataMissing


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTGYM_TOK_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "corpus.jsonl"
    file.write_text(json.dumps({"id": "1", "contents": '"Ada"\nAda wrote programs.'}), encoding="utf-8")
    return file


def options(*arguments: str) -> serve_retriever.Options:
    return parse(serve_retriever.Options, list(arguments), program="agentgym-tok serve-retriever")


def test_a_served_corpus_answers_until_a_signal(corpus: Path) -> None:
    code = (
        "import sys; from agentgym_tok.cli import options, serve_retriever as s;"
        "sys.exit(s.run(options.parse(s.Options, sys.argv[1:], program='x')))"
    )
    command = [sys.executable, "-c", code, str(corpus), "--port", "0", "--token-variable", "A_TOKEN"]
    environment = {**os.environ, "A_TOKEN": "s3cret"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        url = said.split()[2]
        assert url.startswith("http://127.0.0.1:")
        headers = {"Authorization": "Bearer s3cret"}
        answer = requests.post(url, json={"query": "ada"}, headers=headers, timeout=20).json()
        assert answer["result"][0][0]["id"] == "1"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        assert "s3cret" not in said + server.stdout.read()


def test_mistakes_are_named(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetrieverServer, "run", lambda _self: pytest.fail("it serves"))
    with pytest.raises(DataMissing, match=r"none\.jsonl"):
        serve_retriever.run(options(str(corpus.parent / "none.jsonl")))
    with pytest.raises(ConfigError, match="needs a token"):
        serve_retriever.run(options(str(corpus), "--host", "0.0.0.0"))
    monkeypatch.delenv("A_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"empty.*A_TOKEN"):
        serve_retriever.run(options(str(corpus), "--token-variable", "A_TOKEN"))
    with pytest.raises(ConfigError, match=r"retriever bm25; got: .*'index'"):
        serve_retriever.run(options(str(corpus), "--index", "e5_Flat.index"))
    with pytest.raises(ConfigError, match="retriever"):
        options(str(corpus), "--retriever", "tantivy")
