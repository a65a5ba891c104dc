"""A room imports only from floors below it; rooms of one floor do not know each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Floor of each room, from DESIGN's table; the ground's modules are one room. The package itself is the front door.
GROUND = ("tokens", "types", "spaces", "config", "errors", "plugins", "seeds")
FLOORS = {
    "ground": 0.0,
    "chat": 1.0,
    "trace": 1.5,
    "envs": 2.0,
    "policies": 2.0,
    "skills": 2.0,
    "doctor": 2.0,
    "drift": 2.0,
    "harness": 3.0,
    "proxy": 3.0,
    "learner": 4.0,
    "evaluate": 5.0,
    "front door": 5.5,
    "cli": 6.0,
}


def room_of(module: str) -> str:
    """Return the room of a dotted module name; KeyError where nobody has given it a floor."""
    name = module.split(".")[1] if "." in module else "front door"
    room = "ground" if name in GROUND else name
    if room not in FLOORS:
        raise KeyError(f"{module} stands on no floor")
    return room


def imports(source: str) -> Iterator[str]:
    """Yield the modules of the package that a source imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the floor"
            # `from agentgym_tok import tokens` reaches that module, any other name comes through the front door.
            is_room = [alias.name in GROUND or alias.name in FLOORS for alias in node.names]
            names = [
                f"{node.module}.{alias.name}" if node.module == "agentgym_tok" and room else str(node.module)
                for alias, room in zip(node.names, is_room, strict=True)
            ]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "agentgym_tok")


def violations(module: str, source: str) -> list[str]:
    """Return the imports of a module that do not lead down."""
    here = room_of(module)
    found = []
    for target in imports(source):
        there = room_of(target)
        if there != here and FLOORS[there] >= FLOORS[here]:
            found.append(f"{module} ({here}) imports {target} ({there})")
    return found


def modules() -> dict[str, Path]:
    """Return every module of the package by its import name, the linked folders included."""
    bases = {"agentgym_tok": ROOT / "agentgym_tok", "agentgym_tok.envs": ROOT / "envs"}
    bases["agentgym_tok.harness"] = ROOT / "harness"
    found: dict[str, Path] = {}
    for name, base in bases.items():
        for file in sorted(base.rglob("*.py")):
            inner = file.relative_to(base).with_suffix("").parts
            if name == "agentgym_tok" and inner[0] in {"envs", "harness"}:
                continue  # through a link; it has an entry of its own
            found[".".join((name, *inner)).removesuffix(".__init__")] = file
    return found


MODULES = modules()


def test_all_floors_are_seen() -> None:
    rooms = {room_of(module) for module in MODULES}
    assert rooms >= {"ground", "chat", "trace", "envs", "policies", "harness", "proxy", "evaluate", "cli", "front door"}
    assert {"agentgym_tok", "agentgym_tok.tokens", "agentgym_tok.envs.token_env"} <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_imports_lead_down_only(module: str) -> None:
    if room_of(module) == "front door":
        return  # it opens every room to users
    assert violations(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentgym_tok.chat.format", "from agentgym_tok.trace import TraceStore"),
        ("agentgym_tok.tokens", "import agentgym_tok.chat"),
        ("agentgym_tok.errors", "from agentgym_tok.chat.render import render"),
        ("agentgym_tok.envs.token_env", "import agentgym_tok.policies.hf"),
        ("agentgym_tok.policies.hf", "from agentgym_tok.envs.alfworld import SynthGames"),
        ("agentgym_tok.envs.alfworld.env", "from agentgym_tok import harness"),
        ("agentgym_tok.harness.harness", "def late():\n    from agentgym_tok.evaluate import stats"),
        ("agentgym_tok.trace.store", "if TYPE_CHECKING:\n    import agentgym_tok.envs"),
        ("agentgym_tok.trace.store", "from agentgym_tok import ChatFormat"),
        ("agentgym_tok.chat", "import agentgym_tok"),
        ("agentgym_tok.evaluate.stats", "import agentgym_tok.cli.main as main"),
        ("agentgym_tok.harness", "from agentgym_tok.proxy import serve"),
        ("agentgym_tok.proxy.wire.ask", "from agentgym_tok.harness import Harness"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentgym_tok.types", "from agentgym_tok.tokens import Ids\nfrom agentgym_tok import errors"),
        ("agentgym_tok.trace.store", "from agentgym_tok.chat import ChatFormat\nimport agentgym_tok.tokens"),
        ("agentgym_tok.envs.alfworld.env", "from agentgym_tok.envs.token_env import TokenEnv"),
        ("agentgym_tok.harness", "from agentgym_tok.policies import load_policy\nimport agentgym_tok.envs"),
        ("agentgym_tok.cli.main", "from agentgym_tok import __version__\nimport numpy, json"),
        ("agentgym_tok.chat", "import agentgym_tokens_of_others"),
    ],
)
def test_what_leads_down_or_stays_in_the_room_is_allowed(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_a_room_without_a_floor_and_a_relative_import_are_refused() -> None:
    with pytest.raises(KeyError, match="no floor"):
        violations("agentgym_tok.cellar", "import json")
    with pytest.raises(AssertionError, match="relative"):
        violations("agentgym_tok.chat", "from . import render")
