"""Make the pages of the site that nobody writes by hand: the reference, the examples, the changelog.

A hook of mkdocs (`mkdocs.yml`); `make docs` runs it.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from public_names import Definition, reference

__all__ = ["on_config", "on_files", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[1]

_SHOWN = """
::: {module}
    options:
      members: [{members}]
"""
# A function that is named as its module is hidden by it in the package above, and is asked for by its whole path.
_ALONE = """
::: {path}
    options:
      show_root_heading: true
      show_root_toc_entry: true
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the parts of the navigation that are made of the sources."""
    for section in config.nav or ():
        for title, entries in section.items():
            if title == "Reference":
                entries += [
                    {module.removeprefix("agentgym_tok."): f"reference/{module}.md"}
                    for module in sorted(reference(ROOT))
                ]
            elif title == "Examples":
                entries += [f"examples/{file.stem}.md" for file in _examples()]
            elif title == "Project":
                entries += [{f"Weights: {file.parent.name}": f"weights/{file.parent.name}.md"} for file in _cards()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of the sources."""
    for path, text in _pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files beside `docs/` into links to the pages that are made of them."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[1]))
        made = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}.get(target)
        if target.startswith("examples/") and target.endswith(".py"):
            made = target.removesuffix(".py") + ".md"
        elif target.endswith("/card.md"):
            made = f"weights/{posixpath.basename(posixpath.dirname(target))}.md"
        return f"]({posixpath.relpath(made, folder or '.')}{match[2] or ''})" if made else match[0]

    return re.sub(r"\]\(((?:\.\./)+[\w./-]+)(#[\w-]+)?\)", link, markdown)


def _pages() -> Iterator[tuple[str, str]]:
    for name in ("CHANGELOG", "CONTRIBUTING"):
        yield f"{name.lower()}.md", (ROOT / f"{name}.md").read_text(encoding="utf-8")
    for file in _examples():
        code = file.read_text(encoding="utf-8")
        title = (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0]
        yield f"examples/{file.stem}.md", f"# {file.name}\n\n{title}\n\n```python\n{code}```\n"
    for file in _cards():
        yield f"weights/{file.parent.name}.md", file.read_text(encoding="utf-8")
    homes: dict[tuple[str, str], str] = {}
    for module, names in reference(ROOT).items():
        here: list[str] = []
        alone: list[str] = []
        elsewhere: list[tuple[str, str, Definition]] = []
        for name, found in names.items():
            home = homes.setdefault((found.module, found.name), module)
            hidden = found.module.endswith(f".{found.name}")
            path = f"{found.module}.{found.name}" if hidden else f"{home}.{name}"
            if home != module:
                elsewhere.append((name, path, found))
            elif hidden:
                alone.append(path)
            else:
                here.append(name)
        yield f"reference/{module}.md", _reference_page(module, here, alone, elsewhere)


def _reference_page(
    module: str, here: list[str], alone: list[str], elsewhere: list[tuple[str, str, Definition]]
) -> str:
    text = f"# {module}\n" + _SHOWN.format(module=module, members=", ".join(here) or "''")
    text += "".join(_ALONE.format(path=path) for path in alone)
    if elsewhere:
        text += "\n## Shown on other pages\n\n| name | what it is |\n| --- | --- |\n"
        for name, path, found in elsewhere:
            first = (found.doc or "").partition("\n")[0].replace("|", "\\|")
            text += f"| [`{name}`][{path}] | {first} |\n"
    return text


def _cards() -> list[Path]:
    return sorted((ROOT / "agentgym_tok" / "policies" / "small" / "weights").glob("*/card.md"))


def _examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))
