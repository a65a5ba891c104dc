"""Every error says what, where, got, expected and next, is caught by strangers, and travels between processes."""

import ast
import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import errors
from agentgym_tok.errors import AgentGymTokError, UnknownName, unknown_name

CLASSES: list[type[AgentGymTokError]] = [
    value for name in errors.__all__ if isinstance(value := getattr(errors, name), type)
]
PARTS = {"where": "a place", "got": "this", "expected": "that", "fix": "do so"}


def test_every_class_of_the_module_is_public() -> None:
    tree = ast.parse(inspect.getsource(errors))
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert defined == {error.__name__ for error in CLASSES}
    assert len(CLASSES) >= 15


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_ours_and_a_stranger_s(error: type[AgentGymTokError]) -> None:
    assert issubclass(error, AgentGymTokError)
    if error is not AgentGymTokError:
        twins = [base for base in error.__mro__ if base.__module__ == "builtins"]
        assert set(twins) - {object, BaseException, Exception}
    assert "__init__" not in vars(error) or error is AgentGymTokError
    assert error.__doc__


@pytest.mark.parametrize("error", CLASSES)
def test_the_message_does_not_depend_on_the_twin(error: type[AgentGymTokError]) -> None:
    assert str(error("it failed")) == "it failed"
    assert str(error("it failed", got=0, expected="")) == "it failed; got: 0; expected: "
    assert str(error("it failed", **PARTS)) == ("it failed; where: a place; got: this; expected: that; next: do so")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", CLASSES)
def test_every_error_pickles_with_all_its_parts(error: type[AgentGymTokError], protocol: int) -> None:
    original = error("it failed", **PARTS)
    for twin in (pickle.loads(pickle.dumps(original, protocol)), copy.copy(original)):
        assert type(twin) is error
        assert str(twin) == str(original)
        assert {name: getattr(twin, name) for name in PARTS} == PARTS
        assert twin.what == "it failed"


def test_parts_that_cannot_be_pickled_travel_as_text() -> None:
    original = AgentGymTokError("it failed", where=lambda: None, got=7)
    twin = pickle.loads(pickle.dumps(original))
    assert str(twin) == str(original)


def test_an_error_raised_again_by_a_vector_environment_keeps_its_words() -> None:
    original = errors.InvalidIds("it failed", got=3)
    assert str(errors.InvalidIds(original)) == str(original)


def drawn(docstring: str) -> dict[str, tuple[str | None, str | None]]:
    """Return, for each class of a drawn tree, its parent and its twin."""
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[str] = []
    for line in docstring.splitlines():
        match = re.match(r"( *)((?:│   |    )*)(?:[├└]── )?([A-Z]\w+)(?: \((\w+)\))?", line)
        if not match or ("──" not in line and match[3] != "AgentGymTokError"):
            continue
        depth = (match.start(3) - 4) // 4
        above[depth:] = [match[3]]
        found[match[3]] = (above[depth - 1] if depth else None, match[4])
    return found


def test_a_drawn_tree_is_read_with_its_levels() -> None:
    text = "    AgentGymTokError\n    ├── One (ValueError)   words\n    │   └── Two    more\n    └── Three (OSError)\n"
    assert drawn(text) == {
        "AgentGymTokError": (None, None),
        "One": ("AgentGymTokError", "ValueError"),
        "Two": ("One", None),
        "Three": ("AgentGymTokError", "OSError"),
    }


def test_the_tree_in_the_docstring_is_the_tree_of_the_code() -> None:
    code: dict[str, tuple[str | None, str | None]] = {}
    for error in CLASSES:
        ours = [base.__name__ for base in error.__bases__ if issubclass(base, AgentGymTokError)]
        theirs = [base.__name__ for base in error.__bases__ if not issubclass(base, AgentGymTokError)]
        code[error.__name__] = (ours[0] if ours else None, theirs[0] if ours and theirs else None)
    assert drawn(errors.__doc__ or "") == code


def test_an_unknown_name_suggests_the_nearest_known_ones() -> None:
    error = unknown_name("split", "valid_unsen", ["train", "valid_seen", "valid_unseen"], where="gym.make")
    assert isinstance(error, UnknownName)
    assert isinstance(error, LookupError)
    assert str(error) == (
        "unknown split; where: gym.make; got: 'valid_unsen'; expected: train, valid_seen, valid_unseen; "
        "next: did you mean valid_unseen or valid_seen?"
    )


@pytest.mark.parametrize("name", ["zzz", 7, None, ""])
def test_a_name_like_none_of_the_known_ones_gets_no_guess(name: Any) -> None:
    error = unknown_name("policy", name, iter(["expert", "random"]))
    assert error.fix == "choose one of the known policy names"
    assert error.expected == "expert, random"


def test_many_names_are_counted_and_no_names_are_said_to_be_none() -> None:
    assert unknown_name("task", "x", map(str, range(100))).expected == "0, 1, 10, 11, 12, 13, 14, 15, ... (100 in all)"
    assert unknown_name("task", "x", []).expected == "no task exists"


def test_the_library_raises_no_bare_exception() -> None:
    """A raise of `Exception` or `AgentGymTokError` itself would tell a caller nothing."""
    root = Path(__file__).resolve().parents[1]
    files = [file for folder in ("agentgym_tok", "envs", "harness") for file in (root / folder).rglob("*.py")]
    assert len(files) > 30
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                assert node.exc.func.id not in {"Exception", "BaseException", "AgentGymTokError"}, file
