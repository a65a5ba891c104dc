"""The page on what was tested names the versions that the locks name."""

import re

from pages import DOCS, ROOT

PAGE = (DOCS / "tested.md").read_text(encoding="utf-8")


def locked() -> dict[str, set[str]]:
    """Return every pinned version of every package, in the tests' own environment and in those beside it."""
    found: dict[str, set[str]] = {}
    for file in [ROOT / "constraints.txt", *sorted((ROOT / "requirements").glob("*.txt"))]:
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name.lower(), set()).add(version)
    return found


def test_the_versions_are_those_of_the_tests() -> None:
    constraints = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    table = PAGE.partition("| package | version |")[2].partition("Others live")[0]
    named = re.findall(r"\| ([\w-]+) \| (\d[\d.]+) (?=\|)", table)
    assert len(named) == 6
    assert {name: constraints[name] for name, _ in named} == dict(named)


def test_the_versions_of_others_are_those_of_their_locks() -> None:
    versions = {version for every in locked().values() for version in every}
    table = PAGE.partition("| what | version | how |")[2]
    named = {version for row in table.splitlines() for version in re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.])", row)}
    assert len(named) > 8
    # prime-rl is on no index: nothing pins it. ALFWorld, TextWorld and the others stand in their locks.
    assert named - versions <= {"0.8.0"}


def test_what_was_not_tested_is_said() -> None:
    assert re.search(r"\*\*GPU\*\* \| \*\*not tested\*\*", PAGE)
