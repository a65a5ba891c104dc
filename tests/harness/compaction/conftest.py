"""The formats that compactions are tested on: the builtin one, and models' real ones where the shared data is there."""

import json
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat

sys.path.insert(0, str(Path(__file__).parent))

REAL = ("qwen2_5", "qwen3", "deepseek_v3")


@pytest.fixture(scope="session", params=["builtin", *REAL])
def chat(request: pytest.FixtureRequest) -> ChatFormat:
    """Return each format in turn."""
    found: ChatFormat = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ChatFormat]:
    """Make formats of any template on the builtin vocabulary, the way a model's are made."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    rules = (resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(rules, encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return lambda template: ChatFormat.from_pretrained(folder, template)
