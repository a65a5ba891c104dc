"""Charts: axes with round numbers, distributions that lose nothing, marks that stand inside their frame."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.evaluate.report.charts import Bars, Curve, Dots, Figure, Lines, Panel, Shares
from agentgym_tok.evaluate.report.scales import texts, ticks, ticks_of
from agentgym_tok.evaluate.report.spread import bars
from agentgym_tok.evaluate.report.svg import panel_svg

FINITE = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
CHARTS = {
    "dots": Dots(("Pick", "<b>Look</b>"), {0: ((0.5, 0.2, 0.8), None), 3: ((1.0, 0.9, 1.0), (0.0, 0.0, 0.1))}),
    "signed": Dots(("All",), {1: ((-0.5, -1.0, 1.0),)}, signed=True),
    "lines": Lines((Curve(0, "a", ((0, 1.0), (9, 3.5)), ((0.5, 1.5), (3.0, 4.0))), Curve(1, "b", ((4, 2.0),))), "x"),
    "one point": Lines((Curve(0, "", ((1, 0.5),), ((0.1, 0.9),), marked=True),), "k", share=True, whole=True),
    "bars": Bars((0.0, 1.0, 2.0), {0: (1, 2), 2: (0, 5)}, "turns"),
    "shares": Shares(("good", "bad"), (("home", 0, (3, 0)), ("home", 1, (1, 2)))),
}

ELEMENTS = {"svg", "g", "title", "line", "text", "circle", "polygon", "polyline", "rect"}


def figure(chart: Dots | Lines | Bars | Shares) -> Figure:
    return Figure("f", "F & G", (Panel("<i>p</i>", chart),), ("r0", "<script>r1</script>", "r2", "r3"))


@given(FINITE, FINITE, st.integers(2, 8))
def test_ticks_are_round_in_order_and_inside(one: float, other: float, most: int) -> None:
    low, high = min(one, other), max(one, other)
    found = ticks(low, high, most)
    room = 1e-6 * max(1.0, abs(low), abs(high))
    assert found == sorted(set(found))
    assert all(low - room <= value <= high + room for value in found)
    assert len(found) <= most + 1
    assert len(set(texts(found or [0.0]))) == len(found or [0.0])


@given(st.lists(st.one_of(st.integers(-50, 5000).map(float), FINITE), min_size=1, max_size=60))
def test_every_value_is_in_one_bar(values: list[float]) -> None:
    counted = {value: values.count(value) for value in values}
    chart = bars({0: counted, 4: counted}, "x")
    assert sum(chart.counts[0]) == len(values)
    assert chart.counts[0] == chart.counts[4]
    assert list(chart.edges) == sorted(set(chart.edges))
    assert len(chart.edges) <= 52
    assert chart.edges[0] <= min(values)
    assert max(values) <= chart.edges[-1]


def test_whole_numbers_stand_in_the_middle_of_their_bars() -> None:
    chart = bars({0: {0.0: 3, 1.0: 5}}, "return")
    assert chart.edges == (-0.5, 0.5, 1.5)
    assert ticks_of(chart) == [0.0, 1.0]


@pytest.mark.parametrize("name", CHARTS)
def test_svg_is_well_formed_inside_its_frame_and_says_what_it_shows(name: str) -> None:
    drawn = figure(CHARTS[name])
    text = str(panel_svg(drawn, drawn.panels[0]))
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert (root.get("aria-label") or "").startswith("F & G: <i>p</i>. ")
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for element in root.iter():
        for axis, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("cy", height)):
            assert -1 <= float(element.get(axis, "0")) <= most + 1
    assert {element.tag for element in root.iter()} <= ELEMENTS
    assert not re.search(r"style=|nan|inf", text)


@pytest.mark.parametrize("name", CHARTS)
def test_the_table_of_a_figure_has_its_numbers(name: str) -> None:
    table = figure(CHARTS[name]).table()
    expected = {"dots": 3, "signed": 1, "lines": 3, "one point": 1, "bars": 4, "shares": 4}
    assert len(table.rows) == expected[name]
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("name", CHARTS)
def test_pictures_are_drawn_and_equal_ones_are_equal(name: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    from agentgym_tok.evaluate.report.png import figure_png

    first = figure_png(figure(CHARTS[name]))
    assert first.startswith(b"\x89PNG")
    assert first == figure_png(figure(CHARTS[name]))
