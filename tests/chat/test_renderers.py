"""An independent judge: the hand-written renderers of PrimeIntellect, where they know the model exactly.

The vectors are recorded, so that CI needs neither the package nor a network; the file names the version.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Context, Refusal, Root, Span

CASES = json.loads((Path(__file__).parent / "vectors" / "renderers-0.1.12.json").read_text(encoding="utf-8"))["cases"]
DIFFERENT = {
    (
        "qwen3",
        "cut in reasoning",
    ): "they end the reasoning with the bare token; the template writes two line breaks behind it",
    ("deepseek_v3", "cut in reasoning"): "this vocabulary has no token that ends reasoning, so there is nothing to end",
    ("deepseek_v3", "two tools"): "the template of this tokenizer writes a line break between two results",
    ("deepseek_v3", "tool and user"): "the template of this tokenizer does not close results before a user's message",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['tokenizer']}: {case['case']}")
def test_bridges_agree_with_hand_written_renderers(request: pytest.FixtureRequest, case: dict[str, Any]) -> None:
    chat: ChatFormat = request.getfixturevalue(case["tokenizer"])
    opened = chat.open([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Begin."}])
    assert opened.ids.tolist() == case["prompt"]
    context = Context(Root(chat.fingerprint, chat.vocab_size), Span(case["prompt"], "prompt")).sampled(case["sampled"])
    bridged = chat.bridge(context, case["messages"])
    assert not isinstance(bridged, Refusal)
    agrees = bridged.ids.tolist() == case["expected"]
    assert agrees is ((case["tokenizer"], case["case"]) not in DIFFERENT)


def test_most_cases_agree() -> None:
    assert len(DIFFERENT) <= len(CASES) / 4
