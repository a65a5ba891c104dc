"""The code of the pages on teachers and adapters runs."""

import re
from pathlib import Path
from typing import Any

import fixed
import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


class Harness:
    def run_many(self, make_env: Any, prompts: Any) -> Any:
        return fixed.simple()


@pytest.mark.parametrize("page", ["adapters.md", "design/teacher.md"])
def test_the_code_of_the_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL))
    given: dict[str, Any] = {
        "rows": fixed.with_advantages(fixed.rich()),
        "episode": fixed.rich()[2],
        "chat": fixed.CHAT,
        "harness": Harness(),
        "make_env": None,
    }
    exec(compile(code, page, "exec"), given)
    if page == "adapters.md":
        made = given["arguments"]["rollout_func"]([*fixed.TASKS], None)
        assert given["arguments"]["reward_funcs"](**made) == [*fixed.RETURNS]
    else:
        assert "'teacher/refused': 0.0" in capsys.readouterr().out
