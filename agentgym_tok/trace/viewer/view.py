"""A run as one HTML file that needs nothing else, and in which nothing that a world wrote can run."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final, TextIO

from agentgym_tok.errors import TraceError
from agentgym_tok.trace.reader import Reader
from agentgym_tok.trace.records import Episode
from agentgym_tok.trace.shard import shard_paths
from agentgym_tok.trace.store import TraceStore
from agentgym_tok.trace.viewer.chunks import ADVANTAGE_EPSILON, Chunks, DriftMark, advantages, packed

__all__ = ["DriftMark", "page_policy", "write_view"]

_SCRIPTS: Final = ("text.js", "trace.js", "tree.js", "list.js", "tokens.js", "turn.js", "episodes.js", "page.js")


def write_view(
    run: str | Path, out: str | Path | None = None, *, marks: Mapping[str, Sequence[DriftMark]] | None = None
) -> Path:
    """Write a page that shows a whole run in one file.

    What comes from the run stands in it as base64 only, and the page makes text nodes of it.

    Args:
        run: Folder of the run.
        out: The file; `view.html` in the run's folder without it. An older one is replaced.
        marks: Drifts by episode's id, empty where there are none; episodes that are missing were not looked at.

    Returns:
        The file.

    Raises:
        TraceError: There is no trace, or the file cannot be written.
        TraceCorrupt: A record is damaged or missing; `agentgym-tok trace verify` says which.
    """
    target = Path(run) / "view.html" if out is None else Path(out)
    draft = target.with_name(f"{target.name}.part")
    with TraceStore(run, mode="r") as store:
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                _write(file, store, marks or {})
            draft.replace(target)  # whoever opens the page meanwhile never sees half of it
        except OSError as error:
            fix = "name a file in a folder that is there and can be written"
            raise TraceError("the page cannot be written", where=target, got=error.strerror, fix=fix) from error
        finally:
            draft.unlink(missing_ok=True)
    return target


def _write(file: TextIO, store: TraceStore, marks: Mapping[str, Sequence[DriftMark]]) -> None:
    before, after = _page().split("<!-- data -->\n")
    file.write(before)
    chunks, records = Chunks(), []
    for number, episode in enumerate(_episodes(store.run)):
        record, chunk = chunks.add(episode, marks.get(episode.id))
        records.append(record)
        file.write(_data(f"episode-{number}", chunk))
    texts = store.tokens()
    file.write(_data("tokens", packed({"ids": list(texts), "texts": list(texts.values())})))
    meta = store.meta
    index = {
        "folder": store.run.resolve().name,
        "run": meta.model_dump(exclude={"config"}),
        "config": json.dumps(meta.config, indent=1, ensure_ascii=False),
        "roots": chunks.roots,
        "epsilon": ADVANTAGE_EPSILON,
        "advantages": advantages(records),
        "episodes": records,
    }
    file.write(_data("index", packed(index)))
    file.write(after)


def _episodes(run: Path) -> Iterator[Episode]:
    """Yield every episode of every shard, each without its subagents, since those are episodes of their own."""
    for path in shard_paths(run):
        with Reader.opened(path) as reader:
            if reader is None:
                continue
            with reader.snapshot():
                found = map(reader.episode, reader.names(roots=False))
                yield from (episode for episode in found if episode is not None)


def _data(name: str, text: str) -> str:
    # Of a type that browsers do not run, and of an alphabet without "<".
    return f'<script type="application/octet-stream" id="{name}">{text}</script>\n'


# ---- the page around the data


def page_policy() -> str:
    """Return the content security policy of the page: its own script and style, and nothing that could be loaded."""
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_read('page.css'))};"
        " base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _page() -> str:
    page = _read("page.html").replace("$policy", page_policy())
    return page.replace("$style", _read("page.css")).replace("$script", _script())


def _script() -> str:
    return "\n".join(map(_read, _SCRIPTS))


def _read(name: str) -> str:
    return (resources.files("agentgym_tok.trace.viewer") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
