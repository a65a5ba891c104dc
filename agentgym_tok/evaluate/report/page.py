"""A report as one HTML file that needs nothing else, and in which nothing that a world wrote can run."""

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from agentgym_tok.evaluate.report.contents import Contents
from agentgym_tok.evaluate.report.endings import ENDINGS
from agentgym_tok.evaluate.report.episodes import episode_data
from agentgym_tok.evaluate.report.heads import cards
from agentgym_tok.evaluate.report.svg import legend_mark, panel_svg
from agentgym_tok.evaluate.report.tables import Link, shown
from agentgym_tok.evaluate.report.text import visible
from agentgym_tok.trace.records import library_version

__all__ = ["report_html"]


def report_html(contents: Contents, *, pictures: bool) -> str:
    """Return the page.

    Args:
        contents: What stands in it.
        pictures: Whether PNG files stand beside it.
    """
    # What is put in is made visible, then escaped; only our own pieces are markup.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["link"] = lambda value: isinstance(value, Link)
    style, script = Markup(_read("page.css")), Markup(_read("page.js"))  # noqa: S704
    names = [run.name for run in contents.runs]
    return environment.from_string(_read("page.html")).render(
        title=", ".join(names),
        subtitle=_subtitle(contents),
        names=names,
        cards=cards(contents.runs),
        viewed={number for number, _ in contents.links},
        sections=contents.sections,
        endings=ENDINGS,
        pictures=pictures,
        library=library_version(),
        policy=Markup(_policy(style, script)),  # noqa: S704
        style=style,
        script=script,
        data=_data(episode_data(contents.runs, contents.links)),
        shown=shown,
        whole=lambda count: f"{count:,}",
        draw=panel_svg,
        mark=legend_mark,
    )


def _subtitle(contents: Contents) -> str:
    count = "one run" if len(contents.runs) == 1 else f"{len(contents.runs)} runs beside each other"
    sources = dict.fromkeys(card.source for card in cards(contents.runs) if card.source)
    return f"{count}: {'; '.join(sources)}" if sources else count


def _visible(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _data(document: object) -> Markup:
    # In ASCII and without "<", so that no parser of HTML finds an end in it.
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704


def _policy(style: str, script: str) -> str:
    """Return the content security policy: the page's own script and style, and nothing that could be loaded."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)};"
        " base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _read(name: str) -> str:
    return (resources.files("agentgym_tok.evaluate.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
