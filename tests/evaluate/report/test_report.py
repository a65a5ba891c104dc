"""A report: everything that it shows is a file too, equal runs make equal files, and world text is only text."""

import csv
import filecmp
import itertools
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.errors import ConfigError, MissingExtra
from agentgym_tok.evaluate import RunResults
from agentgym_tok.evaluate.paper_table import paper_table
from agentgym_tok.evaluate.report import write_report
from agentgym_tok.evaluate.report.endings import ENDINGS, ending

TRICK = '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2">\u202egnirts |*$x^2$'


class Page(HTMLParser):
    """Collect what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open):
            self.text += data

    def all(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]


@pytest.fixture(scope="module")
def report(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(runs, tmp_path_factory.mktemp("report") / "out", pictures=False)


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report.read_text("utf-8"))


def rows(report: Path, name: str) -> list[dict[str, str]]:
    with (report.parent / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def same(first: Path, second: Path) -> bool:
    """Return whether two folders hold the same files with the same bytes."""
    found = filecmp.dircmp(first, second)
    if found.left_only or found.right_only:
        return False
    _, other, failed = filecmp.cmpfiles(first, second, found.common_files, shallow=False)
    return not other and not failed and all(same(first / name, second / name) for name in found.common_dirs)


# ---- what stands in it


def test_scores_are_those_of_the_results(report: Path, runs: tuple[Path, Path]) -> None:
    results = dict(zip(("good", "bad"), map(RunResults.read, runs), strict=True))
    for part in ("home", "shop"):
        for row in rows(report, f"scores-{part}"):
            run = results[row["run"]]
            if row["kind"] == "macro":
                means = [macro.success for macro in run.macros if macro.part == part]
                expected = [(mean.mean, mean.low, mean.high) for mean in means]
            else:
                scores = [score for score in run.scores if (score.part, score.label) == (part, row["kind"])]
                expected = [(score.success, score.low, score.high) for score in scores]
            names = ("success", "success_interval_low", "success_interval_high")
            assert [tuple(float(row[name]) for name in names)] == expected
    assert {row["kind"] for row in rows(report, "scores-home")} >= {"All", "macro"}


def test_the_table_of_papers_is_the_one_of_eval(page: Page, report: Path, runs: tuple[Path, Path]) -> None:
    printed = paper_table(dict(zip(("good", "bad"), map(RunResults.read, runs), strict=True)))
    assert printed.partition("\n\n")[0] in (report.parent / "report.md").read_text("utf-8")
    table = re.search(r'<table class="paper".*?</table>', report.read_text("utf-8"), re.DOTALL)
    assert table is not None
    for line, name in zip(printed.splitlines()[2:4], ("good", "bad"), strict=True):
        row = next(row for row in table[0].split("<tr>") if f"{name}</th>" in row)
        values = re.findall(r'<td class="n[^"]*">([\d.]*)(?:<small>|</td>)', row)
        assert values == line.strip("| ").split(" | ")[1:]


def test_endings_add_up(report: Path, runs: tuple[Path, Path]) -> None:
    for name, run in zip(("good", "bad"), runs, strict=True):
        episodes = RunResults.read(run).episodes
        listed = [row for row in rows(report, "episodes") if row["run"] == name]
        assert [row["episode"] for row in listed] == [episode.episode for episode in episodes]
        assert [row["ending"] for row in listed] == [ending(episode) for episode in episodes]
        table = [row for row in rows(report, "endings") if row["run"] == name]
        assert sum(int(row["episodes"]) for row in table) == len(episodes)
        assert sum(int(row["solved"]) for row in table) == sum(episode.success for episode in episodes)
    failed = sum(int(row["episodes"]) for row in rows(report, "failures"))
    assert failed == sum(row["ending"] == "failed" for row in rows(report, "episodes")) > 0


def test_what_failed_is_no_success_even_where_the_world_called_it_one(result: Callable[..., Any]) -> None:
    assert ending(result(success=True, failure="world: X: y")) == "failed"
    assert ending(result(success=True, truncation="steps")) == "solved"
    assert [ending(result(truncation=limit)) for limit in ("steps", None)] == ["cut off", "not solved"]
    assert {ending(result(success=True)), "not solved", "cut off", "failed"} == set(ENDINGS)


def test_flips_name_both_episodes_and_lead_to_them(report: Path, page: Page, runs: tuple[Path, Path]) -> None:
    flips = rows(report, "flips-bad-beside-good")
    good, bad = ({one.episode: one for one in RunResults.read(run).episodes} for run in runs)
    assert flips
    for row in flips:
        one, two = good[row["base_episode"]], bad[row["other_episode"]]
        assert (one.task, one.replica) == (two.task, two.replica) == (row["task"], int(row["sample"]))
        assert row["flip"] == ("gained" if two.success else "lost")
        assert f"traces/good.html#episode={one.episode}" in page.all("href")


def test_runs_of_other_worlds_stand_beside_each_other_and_say_why_they_are_not_compared(
    write_results: Any, result: Any, tmp_path: Path
) -> None:
    first = write_results(tmp_path / "a", [result(task="t")], name="home")
    second = write_results(tmp_path / "b", [result(task="t")], name="shop")
    text = Page(write_report([first, second], tmp_path / "out", pictures=False).read_text("utf-8")).text
    assert "These cannot be compared: the runs have other parts" in text


def test_training_runs_have_curves_with_every_step_in_their_files(trained: Path, tmp_path: Path) -> None:
    report = write_report([trained], tmp_path / "out", pictures=False)
    names = {file.stem for file in (tmp_path / "out" / "figures").iterdir()}
    assert names == {"training-success", "training-loss", "training-gap", "training-gate"}
    with (tmp_path / "out" / "figures" / "training-gap.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 399  # one step had none
    text = report.read_text("utf-8")
    longest = max(len(points.split()) for points in re.findall(r'polyline points="([^"]*)"', text))
    assert longest <= 160
    assert "held-out tasks" in Page(text).text


# ---- what it is made of


def test_everything_shown_is_a_file_and_every_link_leads_somewhere(report: Path, page: Page) -> None:
    folder = report.parent
    links = page.all("href")
    own = set(page.all("id"))
    assert len(own) == len(page.all("id"))
    for link in links:
        file, _, place = link.partition("#")
        assert (folder / file).is_file() if file else place in own
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*.csv")}
    assert files == {link for link in links if link.endswith(".csv")}
    assert all(f"traces/{name}.html" in links for name in ("good", "bad"))


def test_the_page_needs_nothing_else(report: Path, page: Page) -> None:
    assert not page.all("src")
    assert not page.all("style")
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not [link for link in page.all("href") if re.match(r"\w+:|//", link)]
    policy = next(value for value in page.all("content") if "default-src" in value)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "://" not in report.read_text("utf-8")


def test_tables_have_headings_and_pictures_have_words(page: Page) -> None:
    assert page.tags.count("caption") == page.tags.count("table") > 10
    assert set(page.all("scope")) == {"col", "row", "colgroup"}
    labels = [value for key, value in page.attributes if key == "aria-label"]
    assert len([label for label in labels if label and len(label) > 40]) >= page.all("class").count("chart") > 8
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(two - one <= 1 for one, two in itertools.pairwise(levels))
    assert "en" in page.all("lang")


def test_world_text_is_only_text(
    report: Path, page: Page, trained: Path, write_results: Any, result: Any, tmp_path: Path
) -> None:
    assert "<script>window.pwned = 1</script><img" in page.text  # in a transcript and among failures
    episodes = [
        result(
            label=label, task=f"{TRICK}/{number}", failure=f"world: {TRICK}: {TRICK}", episode=TRICK, truncation=TRICK
        )
        for number, label in enumerate((TRICK, "other"))
    ]
    hostile = write_results(tmp_path / "a<b>&\"'", episodes, name=TRICK, score=TRICK)
    hostile_page = Page(write_report([hostile, trained], tmp_path / "out").read_text("utf-8"))
    for each in (page, hostile_page):
        assert each.tags.count("script") == 2
        assert "img" not in each.tags
        assert not [name for name, _ in each.attributes if name.startswith("on")]
        assert "\u202e" not in each.text
    assert "window.pwned = 2" in hostile_page.text
    assert "<script>" not in (tmp_path / "out" / "report.md").read_text("utf-8").replace("\\<script\\>", "")


def test_equal_runs_make_equal_files_wherever_they_are_written(
    runs: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    sources = [runs[0], trained]
    first = write_report(sources, tmp_path / "one").parent
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    second = write_report(sources, tmp_path / "two").parent  # an earlier report is replaced
    assert same(first, second)
    pictures = {file.stem for file in (first / "figures").glob("*.png")}
    assert pictures == {file.stem for file in (first / "figures").glob("*.csv")}


def test_a_report_of_results_alone_says_what_is_missing(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = Page(write_report(runs[:1], tmp_path / "out", traces=False, pictures=False).read_text("utf-8"))
    assert not (tmp_path / "out" / "traces").exists()
    assert not [link for link in page.all("href") if link.startswith("traces/")]
    assert "stand in traces, and those of good were not read" in page.text
    assert "Episodes to read" not in page.text


def test_a_large_run_stays_small(write_results: Any, result: Any, tmp_path: Path) -> None:
    episodes = [
        result(
            "Pick" if number % 3 else "Look",
            episode=f"{number:032x}",
            task=f"ALFWorld/valid_unseen/pick_and_place_simple-Thing-None-Shelf-{number}/trial",
            success=number % 2 == 0,
            steps=number % 50,
        )
        for number in range(10_000)
    ]
    report = write_report([write_results(tmp_path / "run", episodes)], tmp_path / "out", pictures=False)
    assert report.stat().st_size < 2_500_000
    assert Page(report.read_text("utf-8")).tags.count("tr") < 200
    assert len(rows(report, "episodes")) == 10_000


# ---- what it refuses


def test_only_a_report_is_replaced(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="holds something else"):
        write_report([trained], tmp_path / "mine", pictures=False)
    write_report([trained], tmp_path / "out", pictures=False)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        write_report([trained], tmp_path / "out", pictures=False)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "new.part" / "figures").mkdir(parents=True)  # left by a process that was killed
    write_report([trained], tmp_path / "new", pictures=False)
    assert not (tmp_path / "new.part").exists()
    (tmp_path / "new.part").mkdir()
    (tmp_path / "new.part" / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"mine\.txt"):
        write_report([trained], tmp_path / "new", pictures=False)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report([trained], tmp_path / "file" / "new", pictures=False)
    assert (tmp_path / "out" / "notes.txt").is_file()


def test_pictures_without_matplotlib_say_what_to_install(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"agentgym-tok\[plot\].*--no-pictures"):
        write_report([trained], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert write_report([trained], tmp_path / "out", pictures=False).is_file()
