"""Every public name has a docstring in our form, from which its place in the reference is made."""

import ast
from pathlib import Path

import docstring_parser
import pytest
from pages import ROOT
from public_names import Definition, Source, public_modules, read_sources, reference

PAGES = reference(ROOT)
NAMES = {(found.module, found.name): found for names in PAGES.values() for found in names.values()}


def parameters(node: ast.stmt) -> list[str]:
    """Return the arguments of a function or of `__init__`, and what a dataclass must be given; no private ones."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        return [one.arg for one in every if one and not one.arg.startswith("_") and one.arg not in {"self", "cls"}]
    assert isinstance(node, ast.ClassDef)
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            return parameters(inner)
    if not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
        return []
    fields = [inner for inner in node.body if isinstance(inner, ast.AnnAssign) and inner.value is None]
    return [ast.unparse(one.target) for one in fields if not ast.unparse(one.target).startswith("_")]


def flaws(found: Definition) -> list[str]:
    """Say what is not in our form.

    One line that is a sentence; `Args`, where there are any, name every parameter. A constant may speak for itself.
    """
    if found.doc is None:
        return [] if isinstance(found.node, ast.Assign | ast.AnnAssign) else ["no docstring"]
    first, _, rest = found.doc.partition("\n")
    wrong = [] if first.endswith((".", ":")) else ["the first line is no sentence"]
    if rest and not rest.startswith("\n"):
        wrong.append("no blank line behind the first one")
    if isinstance(found.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        params = docstring_parser.google.parse(found.doc).params
        said = [one.arg_name.lstrip("*") for one in params if one.args[0] == "param"]
        known = parameters(found.node)
        if said and (missing := [name for name in known if name not in said]):
            wrong.append(f"Args leave out {', '.join(missing)}")
        if isinstance(found.node, ast.FunctionDef) and (unknown := [name for name in said if name not in known]):
            wrong.append(f"Args name {', '.join(unknown)}, which is no parameter")
    return wrong


def test_every_public_name_has_a_docstring_in_our_form() -> None:
    assert {f"{module}.{name}": found for (module, name), one in NAMES.items() if (found := flaws(one))} == {}


def test_what_users_need_first_is_public() -> None:
    assert {"agentgym_tok", "agentgym_tok.envs", "agentgym_tok.trace", "agentgym_tok.learner.torch_learner"} <= set(
        PAGES
    )
    assert {"ChatFormat", "Context", "Policy"} <= set(PAGES["agentgym_tok"])
    assert len(NAMES) > 300


def test_every_package_that_exports_is_public() -> None:
    packages = {
        module
        for module, source in read_sources(ROOT).items()
        if source.is_package and source.exported and not module.startswith("agentgym_tok.cli")
    }
    assert packages <= set(PAGES)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("def name(a): pass", "no docstring"),
        ("def name(a):\n    'Do it'", "sentence"),
        ("def name(a):\n    'Do it.\\nAnd that.'", "blank line"),
        ("def name(a, b):\n    'Do it.\\n\\nArgs:\\n    a: One.\\n'", "leave out b"),
        ("def name(a):\n    'Do it.\\n\\nArgs:\\n    a: One.\\n    c: None.\\n'", "name c"),
        (
            "@dataclass\nclass name:\n    'Hold it.\\n\\n    Args:\\n        a: One.\\n    '\n    a: int\n    b: int",
            "leave out b",
        ),
    ],
)
def test_a_planted_flaw_is_found(code: str, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(code, encoding="utf-8")
    (found,) = flaws(Source("planted", file).defined["name"])
    assert wrong in found


def test_a_module_that_a_page_imports_from_is_public(tmp_path: Path) -> None:
    for file, text in {
        "agentgym_tok/__init__.py": "__all__ = []",
        "agentgym_tok/inner.py": '__all__ = ["name"]\nname = 1',
        "agentgym_tok/other.py": '__all__ = ["name"]\nname = 1',
        "docs/design/page.md": "from agentgym_tok.other import name",
        "docs/page.md": "```python\nfrom agentgym_tok.inner import name\n```",
        "README.md": "",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert public_modules(tmp_path, read_sources(tmp_path)) == ("agentgym_tok.inner",)
