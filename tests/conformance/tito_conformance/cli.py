"""The command line of the suite: play every case against a gateway and print the scoreboard."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from tito_conformance.board import Board
from tito_conformance.cases import CASES
from tito_conformance.engine import FakeEngine
from tito_conformance.gateways.exact import ExactGateway
from tito_conformance.gateways.naive import NaiveGateway
from tito_conformance.models import BUILT, Model, built, read_model
from tito_conformance.play import play
from tito_conformance.script import Case

__all__ = ["main", "run"]

_SHIPPED = {"exact": ExactGateway, "naive": NaiveGateway}
_WAIT = 60.0


def run(gateway: str, engine: FakeEngine, models: Mapping[str, Model], cases: Sequence[Case] = CASES) -> Board:
    """Play the cases whose models are there.

    Args:
        gateway: The gateway's base URL, without `/chat/completions`; `{session}` in it names the conversation.
        engine: The engine behind the gateway.
        models: The models to play on, by name.
        cases: The cases.
    """
    rows = [
        (case, name, play(case, gateway, engine, models[name]))
        for case in cases
        for name in (case.model, *case.real)
        if name in models
    ]
    return Board(gateway, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 where no case failed, 1 where one did or the gateway could not be reached; wrong usage ends with 2.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.write_models is not None:
        for name in BUILT:
            sys.stdout.write(f"{built(name).save(asked.write_models)}\n")
        return 0
    if asked.gateway is None:
        parser.error("name a gateway: --gateway URL, exact, naive, proxy or none")
    cases = [case for case in CASES if not asked.case or case.number in asked.case]
    if not cases:
        parser.error(f"no such case; there are {', '.join(case.number for case in CASES)}")
    models = _models(asked.tokenizers, asked.model)
    if not models:
        parser.error(f"no such model; there are {', '.join(_models(asked.tokenizers, None))}")
    with (
        FakeEngine(list(models.values()), asked.engine_port, scale_out=asked.scale_out) as engine,
        _gateway(asked.gateway, engine, models) as url,
    ):
        if not _reached(url):
            sys.stderr.write(f"nothing listens at {url}; the engine for it is {engine.url}\n")
            return 1
        board = run(url, engine, models, cases)
    named = Board(asked.gateway, board.rows)
    sys.stdout.write((named.json() if asked.output == "json" else named.table()) + "\n")
    return 1 if named.totals["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Judge what a gateway that speaks OpenAI chat does with token ids.")
    parser.add_argument(
        "--gateway",
        metavar="URL",
        help="its base, such as http://127.0.0.1:8000/v1; or exact, naive, proxy, none (no gateway)",
    )
    parser.add_argument("--engine-port", type=int, default=0, metavar="P", help="port of the engine behind the gateway")
    parser.add_argument("--scale-out", action="store_true", help="the engine offers /inference/v1/generate too")
    parser.add_argument("--write-models", type=Path, metavar="FOLDER", help="write the models' files, and end")
    parser.add_argument(
        "--tokenizers", type=Path, metavar="FOLDER", help="real ones: folders qwen2_5, qwen3, deepseek_v3"
    )
    parser.add_argument("--model", action="append", metavar="NAME", help="play on this model only; may be repeated")
    parser.add_argument("--case", action="append", metavar="N", help="play this case only; may be repeated")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    return parser


def _models(folder: Path | None, names: Sequence[str] | None) -> dict[str, Model]:
    """Return the models to play on: those built here, and real tokenizers where there are any."""
    models = {name: built(name) for name in BUILT if not names or name in names}
    real = sorted({name for case in CASES for name in case.real if not names or name in names})
    found = [name for name in real if folder is not None and (folder / name).is_dir()]
    return models | {name: read_model(folder / name, name) for name in found if folder is not None}


@contextmanager
def _gateway(named: str, engine: FakeEngine, models: Mapping[str, Model]) -> Iterator[str]:
    if named == "none":
        yield f"{engine.url}/v1"
    elif named == "proxy":
        from tito_conformance.gateways.proxy import ProxyGateway  # needs the extra `serve`

        with (
            tempfile.TemporaryDirectory() as folder,
            ProxyGateway(engine.url, list(models.values()), Path(folder)) as proxy,
        ):
            yield proxy.url
    elif named in _SHIPPED:
        with _SHIPPED[named](engine.url, list(models.values())) as gateway:
            yield gateway.url
    else:
        yield named


def _reached(url: str) -> bool:
    """Wait until something answers; a gateway may have waited for its engine first."""
    deadline = time.monotonic() + _WAIT
    with requests.Session() as session:
        session.trust_env = False
        while True:
            try:
                session.get(url.replace("{session}", "conformance"), timeout=60)
            except requests.ConnectionError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.2)
            else:
                return True
