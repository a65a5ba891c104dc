"""pyproject.toml, links, folders and files agree, and nothing of this machine stands in them."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]


def package_folders(root: Path, package_dir: Mapping[str, str]) -> dict[str, Path]:
    """Return every folder of a mapped package that has an `__init__.py`, by its import name."""
    found: dict[str, Path] = {}
    for name, folder in package_dir.items():
        base = root / folder
        for init in base.rglob("__init__.py"):
            inner = init.parent.relative_to(base).parts
            if name == "agentgym_tok" and inner[:1] in {("envs",), ("harness",)}:
                continue  # reached through a link; counted under its own map entry
            found[".".join((name, *inner))] = init.parent
    return found


def data_files(folders: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield package and relative path of every file that is no Python, under the nearest package above it."""
    places = {folder: name for name, folder in folders.items()}
    for folder, name in places.items():
        for file in folder.rglob("*"):
            if not file.is_file() or file.suffix in {".py", ".pyc"} or "__pycache__" in file.parts:
                continue
            nearest = next(parent for parent in file.parents if parent in places)
            if nearest == folder:
                yield name, file.relative_to(folder).as_posix()


def unnamed_data(folders: Mapping[str, Path], package_data: Mapping[str, list[str]]) -> list[str]:
    """Return the data files that `package-data` leaves out of the wheel."""
    missing = []
    for name, path in data_files(folders):
        patterns = package_data.get(name, [])
        if not any(
            path in {file.relative_to(folders[name]).as_posix() for file in folders[name].glob(pattern)}
            for pattern in patterns
        ):
            missing.append(f"{name}: {path}")
    return missing


FOLDERS = package_folders(ROOT, SETUPTOOLS["package-dir"])


def test_every_package_folder_is_listed() -> None:
    assert sorted(SETUPTOOLS["packages"]) == sorted(FOLDERS)


def test_a_forgotten_sub_package_is_seen(tmp_path: Path) -> None:
    for folder in ("agentgym_tok/chat", "agentgym_tok/envs", "worlds/new"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    found = package_folders(tmp_path, {"agentgym_tok": "agentgym_tok", "agentgym_tok.envs": "worlds"})
    assert found.keys() == {"agentgym_tok.chat", "agentgym_tok.envs.new"}


def test_every_data_file_is_named_as_package_data() -> None:
    assert unnamed_data(FOLDERS, SETUPTOOLS["package-data"]) == []


def test_a_forgotten_data_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "inner").mkdir()
    for file in ("assets/one.json", "inner/two.txt", "py.typed", "code.py"):
        (tmp_path / file).touch()
    folders = {"p": tmp_path, "p.inner": tmp_path / "inner"}
    assert sorted(unnamed_data(folders, {"p": ["py.typed"]})) == ["p.inner: two.txt", "p: assets/one.json"]
    assert unnamed_data(folders, {"p": ["py.typed", "assets/*.json"], "p.inner": ["*.txt"]}) == []


@pytest.mark.parametrize("name", ["envs", "harness"])
def test_links_point_at_the_real_folders(name: str) -> None:
    link = ROOT / "agentgym_tok" / name
    if link.is_symlink():  # a clone with core.symlinks=false has small text files instead
        assert link.readlink() == Path("..") / name
        assert link.resolve() == ROOT / name
    else:
        assert link.read_text(encoding="utf-8").strip() == f"../{name}"


def test_no_python_stands_at_the_root() -> None:
    assert list(ROOT.glob("*.py")) == []


def test_the_source_archive_takes_tests_and_examples_along() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    assert {"graft tests", "graft examples"} <= set(lines)


# ---- nothing of a machine

# Put together from pieces, so that this file does not name them either.
MACHINE = re.compile(
    "|".join(
        [
            *(rf"(?<![\w.~-])/{folder}/\w" for folder in ("wo" + "rk", "ro" + "ot", "Us" + "ers", "ho" + "me")),
            r"(?<!\w)\." + "library",
            "extra-index" + "-url|--index" + "-url|index" + "_url|trusted" + "-host",
            r"regis" + r"try\.[\w-]+\.|pro" + r"xy\.golang|files\.python" + r"hosted|arti" + "factory",
            r"https?://(?:\d+\.){3}\d+(?<!127\.0\.0\.1)(?<!0\.0\.0\.0)",
        ]
    )
)


def project_files() -> list[Path]:
    """Return the files that are, or would be, committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout")
    files = [ROOT / name for name in listed.split("\0") if name]
    return [file for file in files if file.is_file() and not file.is_symlink()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = []
    for file in files:
        text = file.read_bytes().decode("utf-8", "replace")
        found += [f"{file.relative_to(ROOT)}: {match[0]}" for match in MACHINE.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("open('/wo" + "rk/shared/x')", True),
        ("cd /ro" + "ot/w", True),
        ("/ho" + "me/ann/x", True),
        ("pip install --index" + "-url x", True),
        ("https://regis" + "try.npmjs.org/x", True),
        ("http:/" + "/10.0.0.7:80", True),
        ("http://127.0.0.1:80", False),
        ("https://example.org/wo" + "rk/page", False),
        ("frame/wo" + "rk/", False),
        ("at home/kitchen", False),
        ("the registry of worlds", False),
    ],
)
def test_a_planted_name_of_a_machine_is_found(text: str, named: bool) -> None:
    assert bool(MACHINE.search(text)) is named


# ---- what an import costs

HEAVY = [
    "agentgym_tok.envs.searchqa",
    "agentgym_tok.envs.webshop",
    "regex",
    "bm25s",
    "bs4",
    "faiss",
    "starlette",
    "torch",
    "transformers",
    "requests",
    "alfworld",
    "textworld",
    "pandas",
    "pyarrow",
    "ray",
    "vllm",
    "rich",
]


def test_the_import_stays_light() -> None:
    code = f"import sys, agentgym_tok; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.split() == []


def test_the_import_says_nothing_and_warns_of_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", "import agentgym_tok"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert (out.stdout, out.stderr) == ("", "")


def test_ci_has_all_that_tests_elsewhere_may_be_skipped_without() -> None:
    if os.environ.get("CI", "").lower() not in {"1", "true"}:
        pytest.skip("outside CI the tests of shared data and of the browser may be skipped")
    assert os.environ.get("AGENTGYM_TOK_CHROMIUM") or shutil.which("chromium"), "no browser; apt-get install chromium"
    assert shutil.which("cc"), "no C compiler for the tests that inject faults"
    folder = Path(os.environ.get("AGENTGYM_TOK_SHARED") or ROOT.parent / "shared")
    assert (folder / "tokenizers").is_dir(), f"no shared data at {folder}; set AGENTGYM_TOK_SHARED"
