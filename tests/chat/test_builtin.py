"""The builtin format is what its script makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_builtin_tokenizer.py"


@pytest.mark.deep
@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_script_makes_the_shipped_tokenizer_on_any_hash_seed(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout == "tokenizer.json: as trained\n"


def test_it_has_the_size_and_the_tokens_that_the_design_names() -> None:
    chat = ChatFormat.builtin()
    spelled = {chat.token_text(index) for index in chat.control_ids}
    assert chat.vocab_size == 4096
    assert spelled == {
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    }
    assert all(len(chat.encode(word)) == 1 for word in ("system", "user", "assistant", " drawer", " fridge"))
