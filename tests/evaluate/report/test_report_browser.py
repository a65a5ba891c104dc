"""The report in a real browser: nothing runs or loads, lists are searched, links lead into traces, it fits."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.evaluate import RunResults
from agentgym_tok.evaluate.report import write_report


@pytest.fixture(scope="module")
def report(runs: tuple[Path, Path], trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([*runs, trained], tmp_path_factory.mktemp("report") / "out", pictures=False)


@pytest.fixture
def page(browser: Any, report: Path) -> Any:
    return browser.open(report.as_uri())


def lines(page: Any) -> list[list[str]]:
    return page.js(
        "[...document.querySelectorAll('#episode-list tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )


def headings(page: Any) -> list[str]:
    return page.js("[...document.querySelectorAll('#episode-list thead th')].map((cell) => cell.innerText.trim())")


def choose(page: Any, name: str, value: str) -> None:
    page.js(f"""(() => {{
        const control = document.getElementById({json.dumps(name)});
        control.value = {json.dumps(value)};
        control.dispatchEvent(new Event("input", {{bubbles: true}}));
    }})()""")


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (360, False)])
def test_nothing_sticks_out_and_nothing_is_complained_of(browser: Any, report: Path, width: int, *, dark: bool) -> None:
    page = browser.open(report.as_uri(), width=width, dark=dark)
    page.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.js("document.documentElement.scrollWidth") == width
    out = """[...document.querySelectorAll('main *')].filter((one) => {
        if (one.closest('.scroll') || one.closest('svg')) return false;
        return one.getBoundingClientRect().right > innerWidth + 1;
    }).length"""
    assert page.js(out) == 0
    back, ink = page.js("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert (sum(map(int, back[4:-1].split(","))) < sum(map(int, ink[4:-1].split(",")))) is dark
    assert page.complaints() == []
    assert len(page.requests()) == 1
    assert page.js("window.pwned") is None


def test_the_list_is_searched_filtered_and_sorted(page: Any, runs: tuple[Path, Path]) -> None:
    results = [RunResults.read(run) for run in runs]
    every = [episode for result in results for episode in result.episodes]
    count = "document.getElementById('count').textContent"
    assert page.js(count) == f"{len(every)} episodes"
    assert "score %" in headings(page)
    choose(page, "part", "home")
    assert "score %" not in headings(page)
    assert len(lines(page)) == len([episode for episode in every if episode.part == "home"])
    choose(page, "ending", "solved")
    solved = [episode for episode in every if episode.part == "home" and episode.success]
    assert len(lines(page)) == len(solved) > 0
    place = headings(page).index("steps")
    page.js(
        "[...document.querySelectorAll('#episode-list thead button')]"
        ".find((one) => one.textContent === 'steps').click()"
    )
    assert [int(line[place]) for line in lines(page)] == sorted((one.steps for one in solved), reverse=True)
    assert page.js("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    page.js("document.activeElement.click()")  # the heading keeps the focus
    assert [int(line[place]) for line in lines(page)] == sorted(one.steps for one in solved)
    choose(page, "part", "")
    choose(page, "ending", "")
    choose(page, "words", f"{every[0].episode} {every[0].label.upper()}")
    assert len(lines(page)) == 1
    choose(page, "words", "nothing has this")
    assert (lines(page), page.js(count)) == ([], f"0 of {len(every)} episodes")


def test_each_line_leads_to_its_episode_in_the_trace(browser: Any, report: Path, runs: tuple[Path, Path]) -> None:
    episode = RunResults.read(runs[1]).episodes[-1]
    page = browser.open(report.as_uri())
    choose(page, "words", episode.episode)
    address = page.js("document.querySelector('#episode-list tbody a').href")
    viewer = browser.open(address)
    assert viewer.js("document.querySelector('#episode').innerText").count(episode.episode) == 1
    assert viewer.complaints() == []


def test_without_a_script_tables_and_first_episodes_are_there(
    browser: Any, report: Path, runs: tuple[Path, Path]
) -> None:
    page = browser.open("data:text/html,<body data-ready=yes>")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.call("Page.navigate", url=report.as_uri())
    page.wait("document.readyState === 'complete' && document.querySelector('footer')")
    assert len(lines(page)) == 25
    assert page.js("document.getElementById('filters').offsetHeight") == 0
    assert "the CSV has all" in page.js("document.getElementById('episodes').innerText")
    page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_ten_thousand_episodes_are_paged(browser: Any, write_results: Any, result: Any, tmp_path: Path) -> None:
    episodes = [result(episode=f"e{number}", task=f"t/{number}", steps=number) for number in range(10_000)]
    report = write_report([write_results(tmp_path / "run", episodes)], tmp_path / "out", pictures=False)
    page = browser.open(report.as_uri())
    assert page.js("document.querySelectorAll('*').length") < 2500
    assert (len(lines(page)), lines(page)[0][0]) == (50, "0")
    assert page.js("document.getElementById('page').textContent") == "page 1 of 200"
    assert page.js("document.getElementById('earlier').disabled")
    page.click("#later")
    assert lines(page)[0][0] == "50"
    choose(page, "words", "9999")
    assert [line[0] for line in lines(page)] == ["9999"]
    assert page.js("document.getElementById('pages').hidden")


def test_examples_are_read_by_keyboard(page: Any) -> None:
    page.js("document.querySelector('.example summary').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r")
    said = page.js("[...document.querySelectorAll('.example[open] .said dt')].map((one) => one.textContent)")
    assert "policy" in said
    assert "user" in said


def test_print_shows_no_controls_and_cuts_no_table(page: Any) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        shown = (
            "[...document.querySelectorAll('nav, #filters, .pages, .file')].filter((one) => one.offsetHeight).length"
        )
        assert page.js(shown) == 0
        assert page.js("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
