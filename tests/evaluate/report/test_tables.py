"""A table is the same as HTML, CSV and markdown: CSV has all digits, markdown is only text."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.evaluate.report.tables import Column, Link, Table, shown

COLUMNS = (Column("name", "name"), Column("rate", "rate %", "percent"), Column("interval", "95 %", "percent"))


def test_csv_has_all_digits_and_two_columns_for_an_interval() -> None:
    rate = 1 / 3
    table = Table("t", "T", COLUMNS, (("a", rate, (0.1, 2 / 3)), ("b", None, None)))
    first, second = csv.DictReader(io.StringIO(table.csv()))
    assert float(first["rate"]) == rate
    assert float(first["interval_high"]) == 2 / 3
    assert second == {"name": "b", "rate": "", "interval_low": "", "interval_high": ""}


def test_a_cell_is_no_formula() -> None:
    table = Table("t", "T", (Column("name", "name"),), (("=1+1",), ("@x",), (Link("-2", value="+3"),), (-2.5,)))
    assert [row[0] for row in csv.reader(io.StringIO(table.csv()))] == ["name", "'=1+1", "'@x", "'+3", "-2.5"]


@given(st.text(max_size=40))
def test_a_cell_of_markdown_stays_in_its_place(text: str) -> None:
    table = Table("t", "T", COLUMNS, ((text, 0.5, (0.0, 1.0)),))
    head, rule, row, *rest = table.markdown().split("\n")
    assert rest == [""]
    assert head == "| name | rate % | 95 % |"
    assert rule == "| --- | ---: | ---: |"
    assert row.endswith(" | 50.0 | 0.0 to 100.0 |")
    assert row.replace("\\|", "").count("|") == 4
    assert "<" not in row.replace("\\<", "")


def test_each_kind_has_a_look() -> None:
    assert shown(0.8333, "percent") == "83.3"
    assert shown((-1.25, 2.0), "change") == "\u22121.2 to +2.0"
    assert (shown(0.0004, "p"), shown(0.04, "p")) == ("4.0e-04", "0.040")
    assert (shown(12, "tenth"), shown(1200, "number"), shown(None, "number")) == ("12.0", "1,200", "")
