"""The guide's example prints what the guide says."""

import contextlib
import io
import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "skills.md"


def test_the_example_prints_what_stands_below_it() -> None:
    code, printed = re.findall(r"^```(?:python|text)\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[
        :2
    ]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, GUIDE.name, "exec"), {})
    assert out.getvalue() == printed
