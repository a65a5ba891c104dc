"""ATIF documents as rollouts: our own come back equal, those of other tools where they hold every id."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.tokens import Span, as_ids
from agentgym_tok.trace.drafts import new_folder
from agentgym_tok.trace.exchange.atif_foreign import foreign_episode
from agentgym_tok.trace.exchange.atif_record import VERSION, episode_from
from agentgym_tok.trace.exchange.atif_spans import ours, reading
from agentgym_tok.trace.exchange.atif_steps import image_path
from agentgym_tok.trace.records import Episode, RunMeta
from agentgym_tok.trace.rows import family
from agentgym_tok.trace.store import TraceStore

__all__ = ["from_atif", "import_atif"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


def import_atif(path: str | Path, out: str | Path, *, meta: RunMeta | None = None) -> int:
    """Write ATIF files to a run.

    Args:
        path: A file, or a folder whose `*.json` are taken in the order of their names.
        out: Folder of the new run; nothing may stand there.
        meta: What the run is made with, such as the tokenizer that another tool's ids belong to; without it, what the
            first file says.

    Returns:
        Number of rollouts.

    Raises:
        TraceError: There is no file, one cannot be read or lacks ids, or nobody says which tokenizer they belong to.
        TraceCorrupt: A file is no ATIF document, or contradicts itself; the message names the file and the step.
        FingerprintMismatch: Ids belong to another chat format than the run's.
    """
    source = Path(path)
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    if not files:
        raise TraceError("there is no ATIF file", where=source, expected="*.json", fix="look at the path")
    with new_folder(Path(out)) as folder, TraceStore(folder, meta=meta or _run(files[0])) as store:
        for file in files:
            document = _read(file)
            episode = from_atif(document, meta=store.meta, name=file.stem)
            _add_images(store, document, file)
            for member in family(episode):
                _add(store, member)
    return len(files)


def from_atif(document: Mapping[str, Any], *, meta: RunMeta | None = None, name: str = "ATIF document") -> Episode:
    """Return the rollout of an ATIF document.

    Args:
        document: Of `to_atif`, or of another tool whose agent's steps all hold their ids.
        meta: Says which tokenizer the ids of another tool's document belong to.
        name: What messages call the document; also the id of a rollout that has none.

    Raises:
        TraceCorrupt: It is no ATIF document, or contradicts itself; the message names the step.
        TraceError: A step lacks ids, or nobody says which tokenizer they belong to.
    """
    with reading(name):
        record = ours(document)
    if record is None:
        return foreign_episode(document, meta, name)
    if record.get("version") != VERSION:
        got, fix = f"version {record.get('version')}", "read it with the library that wrote it"
        raise TraceError("unknown version of the record", where=name, got=got, expected=VERSION, fix=fix)
    with reading(name):
        steps, children = tuple(document["steps"]), tuple(document.get("subagent_trajectories") or ())
    turns: dict[int, tuple[Mapping[str, Any], Span]] = {}
    for place, step in enumerate(steps, 1):
        with reading(f"{name}: step {place}"):
            if step["step_id"] != place:
                raise ValueError(f"it is numbered {step['step_id']}")
            own, metrics = ours(step), step.get("metrics")
            if own is not None:
                turns[place] = own, Span(metrics["completion_token_ids"], own["origin"], metrics.get("logprobs"))
    episode = episode_from(record, turns, name)
    for place, (turn, _) in turns.items():
        with reading(f"{name}: step {place}"):
            ids_T = steps[place - 1]["metrics"].get("prompt_token_ids")
            if ids_T is not None and not np.array_equal(as_ids(ids_T), episode.turns[turn["seq"]].context.ids):
                raise ValueError("prompt_token_ids are not those that the record has")
    below = [from_atif(child, meta=meta, name=f"{name}: subagent {k}") for k, child in enumerate(children)]
    return replace(episode, children=tuple(below))


def _run(file: Path) -> RunMeta:
    """Return what a file's run was made with."""
    document = _read(file)
    with reading(file.stem):
        record = ours(document) or {}
        if record.get("run") is not None:
            return RunMeta.model_validate(record["run"])
        for root in record.get("roots", ()):
            return RunMeta(fingerprint=root["fingerprint"], vocab_size=root["vocab_size"])
    raise TraceError(
        "nobody says which tokenizer the ids belong to",
        where=file,
        fix="name it: --chat, or meta=RunMeta(fingerprint=..., vocab_size=...)",
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        fix = "look at the path"
        raise TraceError("the file cannot be read", where=file, got=error.strerror, fix=fix) from error
    except (ValueError, RecursionError) as error:
        raise TraceCorrupt("the file is no JSON", where=file, got=error) from error
    if not isinstance(document, dict):
        got = type(document).__name__
        raise TraceCorrupt("the file is no ATIF document", where=file, got=got, expected="a JSON object")
    return document


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _add_images(store: TraceStore, document: Mapping[str, Any], file: Path) -> None:
    with reading(file.stem):
        images = dict((ours(document) or {}).get("images") or {})
    for name, kind in ((str(name), str(kind)) for name, kind in images.items()):
        # Made of the name, never taken from the document, which could lead anywhere.
        path = file.parent / image_path(name, kind)
        try:
            body = path.read_bytes() if _SHA256.fullmatch(name) else b""
        except OSError as error:
            raise TraceError("an image cannot be read", where=path, got=error.strerror) from error
        found = hashlib.sha256(body).hexdigest()
        if found != name:
            raise TraceCorrupt("an image is another one", where=f"{file.stem}: image {name}", got=found, expected=name)
        store.add_image(body, kind)


def _add(store: TraceStore, episode: Episode) -> None:
    store.begin(episode.head)
    for turn in episode.turns:
        store.append(turn)
    if episode.status != "running":
        store.finish(episode.id, episode.status, episode.success, episode.failure)
