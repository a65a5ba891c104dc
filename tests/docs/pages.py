"""The pages of the documentation and their code blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {file.relative_to(DOCS).as_posix(): file for file in sorted(DOCS.rglob("*.md"))}

# Pages with a test of their own, which runs their blocks with what they need beside them.
ELSEWHERE = {
    "adapters.md": "learner/adapters/test_docs.py",
    "design/teacher.md": "learner/adapters/test_docs.py",
    "design/trace.md": "trace/test_schema.py",
    "evaluation.md": "evaluate/test_docs.py",
    "harness.md": "harness/test_docs.py",
    "plugins.md": "envs/adapters/test_docs.py",
    "reports.md": "evaluate/report/test_docs.py",
    "scaling.md": "harness/scale/test_docs.py",
    "training.md": "learner/training/test_docs.py",
}

# Blocks that nobody runs on pages which say so in their words: page and first line, and why.
UNMARKED = {
    ("builtin.md", 'agentgym-tok eval alfworld --policy "numpy:out/model'): "it needs a model that was trained before",
    ("proxy.md", 'pip install "agentgym-tok[serve,engines]"'): "it needs a running vLLM",
    ("proxy.md", "from agentgym_tok import ChatFormat"): "it needs a running vLLM and an agent",
    ("scaling.md", "ray start --head"): "it needs several machines",
    ("training.md", "agentgym-tok train preset:tiny"): "it trains for minutes to hours",
}

# A comment on the line before a block; the reader of the site does not see it.
_BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Hold one code block.

    Args:
        kind: The language behind the fence; empty without one.
        text: Its lines.
        reason: Why nobody runs it; None where it is run.
    """

    kind: str
    text: str
    reason: str | None


def blocks(page: str) -> list[Block]:
    """Read the code blocks of a page in order."""
    found = _BLOCK.findall(PAGES[page].read_text(encoding="utf-8"))
    known = {first: reason for (name, first), reason in UNMARKED.items() if name == page}
    return [
        Block(kind, text, reason or next((why for first, why in known.items() if text.startswith(first)), None))
        for reason, kind, text in found
    ]
