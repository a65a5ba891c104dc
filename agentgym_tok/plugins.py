"""Worlds, policies, learners and retrievers that other packages bring, found by their entry points.

Reading what is declared imports nothing; a plug-in's module is imported when its name is used. What ships with the
library is found before any declaration is read, so that no package can stand in its place.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from agentgym_tok.errors import ConfigError, unknown_name

__all__ = ["GROUPS", "Kind", "Plugin", "declared", "find_plugin", "plugin_names"]

Kind: TypeAlias = Literal["world", "policy", "learner", "retriever", "skill retriever"]

GROUPS: Mapping[Kind, str] = {
    "world": "agentgym_tok.worlds",
    "policy": "agentgym_tok.policies",
    "learner": "agentgym_tok.learners",
    "retriever": "agentgym_tok.retrievers",
    "skill retriever": "agentgym_tok.skill_retrievers",
}
"""The groups of entry points, by what a plug-in of theirs is."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class Plugin:
    """Hold what a package declares.

    Args:
        kind: What it is.
        name: The name that users write.
        target: Where it stands, `module:attribute`.
        package: The distribution that declares it.
        version: Its version.
        flaw: Why the name cannot be used; None where nothing is known against it.
    """

    kind: Kind
    name: str
    target: str
    package: str
    version: str
    flaw: str | None = None
    entry: EntryPoint | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.package} {self.version} ({self.target})"

    def load(self) -> Any:
        """Import the module and return what makes the plug-in, a class or a function.

        Raises:
            ConfigError: The name is taken, the module cannot be imported, or it holds nothing that can be called.
        """
        if self.flaw is not None or self.entry is None:
            raise self.broken(self.flaw or "no entry point")
        try:
            made = self.entry.load()
        except (Exception, SystemExit) as error:  # whatever a foreign module does when it is imported
            raise self.broken(f"{type(error).__name__}: {error}") from error
        if not callable(made):
            raise self.broken(type(made).__name__, expected="a class or a function")
        return made

    def broken(self, got: object, *, expected: object = None) -> ConfigError:
        """Make the error that names the plug-in and its package."""
        return ConfigError(
            "a plug-in is broken",
            where=self,
            got=got,
            expected=expected,
            fix=f"repair, update or uninstall {self.package}; everything else works without it",
        )


def declared(kind: Kind, builtin: Collection[str] = ()) -> list[Plugin]:
    """Return all that packages declare of a kind, sorted by name and package; nothing is imported.

    Args:
        kind: The kind.
        builtin: Names that the library has itself: a plug-in by one of them cannot be used.
    """
    found = [
        (entry, "an unknown package" if entry.dist is None else entry.dist.name, entry.dist)
        for entry in entry_points(group=GROUPS[kind])
    ]
    owners: dict[str, list[str]] = {}
    for entry, package, _ in found:
        owners.setdefault(entry.name, []).append(package)
    made = [
        Plugin(
            kind,
            entry.name,
            entry.value,
            package,
            "?" if dist is None else dist.version,
            _flaw(entry.name, owners[entry.name], builtin),
            entry,
        )
        for entry, package, dist in found
    ]
    return sorted(made, key=lambda plugin: (plugin.name, plugin.package, plugin.target))


def _flaw(name: str, owners: list[str], builtin: Collection[str]) -> str | None:
    if name in builtin:
        return "the library has this name itself"
    if len(owners) > 1:
        return f"the name is declared more than once, by {', '.join(sorted(owners))}"
    if not _NAME.fullmatch(name):
        return "a name is letters, digits and . _ -, and begins with a letter or a digit"
    return None


def plugin_names(kind: Kind, builtin: Collection[str] = ()) -> list[str]:
    """Return the names that can be used, without those of the library; nothing is imported."""
    return [plugin.name for plugin in declared(kind, builtin) if plugin.flaw is None]


def find_plugin(kind: Kind, name: str, builtin: Collection[str] = (), *, where: object = None) -> Plugin:
    """Return the plug-in of a name.

    Args:
        kind: The kind.
        name: The name, which is none of the library's.
        builtin: Names that the library has itself, for the error.
        where: The place that asked, for the error.

    Raises:
        UnknownName: Nobody declares it.
        ConfigError: It is declared, and cannot be used.
    """
    plugins = declared(kind, builtin)
    for plugin in plugins:
        if plugin.name == name:
            if plugin.flaw is not None:
                raise plugin.broken(plugin.flaw)
            return plugin
    known = [*builtin, *(plugin.name for plugin in plugins if plugin.flaw is None)]
    raise unknown_name(kind, name, known, where=where)
