"""Say which names of the library are public, and where its reference shows each.

Public is what stands in the `__all__` of a package, or of a module from which a page, the README or an example imports.
Sources are read and never imported, so that neither a site nor a test needs the extras.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["Definition", "Source", "public_modules", "read_sources", "reference"]

# Commands are used by their names and `--help`, and the pages on design may look behind the door.
_BEHIND = ("agentgym_tok.cli",)

_IMPORT = re.compile(r"from (agentgym_tok[\w.]*) import (\([^)]*\)|[\w, ]+)|`(agentgym_tok(?:\.\w+)+)[`(]")


@dataclass(frozen=True, slots=True)
class Definition:
    """Hold where a name is defined.

    Args:
        module: The dotted name of the module.
        name: The name there.
        node: Its statement; None for a module, and for what another library defines.
        doc: Its docstring, or the string below a constant; None without.
    """

    module: str
    name: str
    node: ast.stmt | None
    doc: str | None


class Source:
    """Read one module without importing it.

    Args:
        module: Its dotted name.
        file: Where it stands.
    """

    def __init__(self, module: str, file: Path) -> None:
        self.module, self.file = module, file
        self._tree = ast.parse(file.read_text(encoding="utf-8"))
        self.doc = ast.get_docstring(self._tree)

    @property
    def is_package(self) -> bool:
        """Tell whether it is the `__init__.py` of a folder."""
        return self.file.name == "__init__.py"

    @cached_property
    def exported(self) -> tuple[str, ...]:
        """Give the names in `__all__`; none without it."""
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
                return tuple(ast.literal_eval(node.value))
        return ()

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Give the module and the name there of each name that is imported from elsewhere."""
        found = (node for node in ast.walk(self._tree) if isinstance(node, ast.ImportFrom) and node.module)
        return {alias.asname or alias.name: (str(node.module), alias.name) for node in found for alias in node.names}

    @cached_property
    def defined(self) -> dict[str, Definition]:
        """Give the definitions of the module; of overloads the one with the docstring."""
        found: dict[str, Definition] = {}
        for name, node, doc in _statements(self._tree.body):
            if name not in found or found[name].doc is None:
                found[name] = Definition(self.module, name, node, doc)
        return found


def _statements(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt, str | None]]:
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node, ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            said = after.value if isinstance(after, ast.Expr) else None
            doc = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else None
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield ast.unparse(one), node, doc


def read_sources(root: Path) -> dict[str, Source]:
    """Read every module of the package, the linked folders under their import names.

    Args:
        root: The project's folder.

    Returns:
        The modules by their dotted names.
    """
    bases = {"agentgym_tok": root / "agentgym_tok", "agentgym_tok.envs": root / "envs"}
    bases["agentgym_tok.harness"] = root / "harness"
    found: dict[str, Source] = {}
    for base, folder in bases.items():
        for file in sorted(folder.rglob("*.py")):
            inner = file.relative_to(folder).with_suffix("").parts
            if base == "agentgym_tok" and inner[0] in {"envs", "harness"}:
                continue  # through a link; it has an entry of its own
            module = ".".join((base, *inner)).removesuffix(".__init__")
            found[module] = Source(module, file)
    return found


def public_modules(root: Path, sources: dict[str, Source]) -> tuple[str, ...]:
    """Find the modules whose `__all__` is public.

    Args:
        root: The project's folder.
        sources: Of `read_sources`.

    Returns:
        Dotted names in order, those with nothing to show left out.
    """
    patterns = ("README.md", "docs/*.md", "docs/*/*.md", "examples/*.py", "examples/plugin/**/*.py")
    pages = [page for pattern in patterns for page in root.glob(pattern) if page.parent.name != "design"]
    used = {module for page in pages for module in _used(page, sources)}
    packages = {module for module, source in sources.items() if source.is_package}
    return tuple(
        sorted(
            module
            for module in used | packages
            if sources[module].exported and not module.startswith(_BEHIND) and "._" not in module
        )
    )


def _used(page: Path, sources: dict[str, Source]) -> Iterator[str]:
    for module, names, quoted in _IMPORT.findall(page.read_text(encoding="utf-8")):
        asked = [f"{module}.{name}" for name in re.findall(r"\w+", names)] if module else [quoted]
        for name in asked:
            yield from (found for found in (name, name.rpartition(".")[0]) if found in sources)


@cache
def reference(root: Path) -> dict[str, dict[str, Definition]]:
    """Lay out the reference: every public name where users find it first.

    Args:
        root: The project's folder.

    Returns:
        For each public module its names with their definitions. One definition under several names is shown at the
        shortest of its modules; `home` of a name is the first module in this order that has it.
    """
    sources = read_sources(root)
    modules = sorted(public_modules(root, sources), key=lambda module: (module.count("."), module))
    return {
        module: {name: _definition(module, name, sources) for name in sources[module].exported} for module in modules
    }


def _definition(module: str, name: str, sources: dict[str, Source]) -> Definition:
    source = sources.get(module)
    if source is None:
        return Definition(module, name, None, None)
    if name in source.defined:
        return source.defined[name]
    if name in source.imported and source.imported[name] != (module, name):
        return _definition(*source.imported[name], sources)
    if f"{module}.{name}" in sources:
        return Definition(module, name, None, sources[f"{module}.{name}"].doc)
    raise LookupError(f"{module}.__all__ names {name}, which is nowhere defined")
