"""The proxy in front of a scripted policy, in several dialects."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.trace import Episode, TraceStore, Turn

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("scripted", "talk")

if TYPE_CHECKING:
    from scripted import Say, Scripted

    from agentgym_tok.proxy import Proxy, ProxySession

FAMILIES = ("glm4moe", "qwen3_6")
"""Dialects that write calls otherwise than Hermes does: templates out of the trl wheel (`make templates`)."""


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ChatFormat]:
    """Return a model's template on the builtin vocabulary and the control tokens that it spells."""
    pytest.importorskip("transformers")
    templates = os.environ.get("AGENTGYM_TOK_TRL")
    if not templates:
        pytest.skip("no templates: make templates, and set AGENTGYM_TOK_TRL to the folder")

    def make(name: str) -> ChatFormat:
        folder = tmp_path_factory.mktemp(name)
        template = (Path(templates) / f"{name}.jinja").read_text(encoding="utf-8")
        rules = json.loads((resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_bytes())
        known = {token["content"] for token in rules["added_tokens"]}
        spelled = set(re.findall(r"<\|[a-z_]+\|>|</?[a-z_]+>", template)) | {"<|endoftext|>"}
        first = 1 + max(rules["model"]["vocab"].values())
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        rules["added_tokens"] += [
            {"id": place, "content": text, **plain} for place, text in enumerate(sorted(spelled - known), first)
        ]
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
        (folder / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return ChatFormat.from_pretrained(folder, template)

    return make


@pytest.fixture(scope="session", params=["builtin", "qwen3", *FAMILIES])
def chat(request: pytest.FixtureRequest) -> ChatFormat:
    """Return each dialect in turn."""
    if request.param in FAMILIES:
        made: ChatFormat = request.getfixturevalue("family")(request.param)
        return made
    found: ChatFormat = request.getfixturevalue(request.param)
    return found


@dataclass
class Stage:
    """Hold a proxy that a client may talk to, and what there is to prove behind it."""

    run: Path
    chat: ChatFormat
    policy: "Scripted"
    proxy: "Proxy"
    session: "ProxySession"

    def settle(self) -> None:
        """Wait until nothing is being answered: what a client broke off is recorded."""
        while json.loads(urlopen(f"{self.proxy.url}/health").read())["in_flight"]:
            time.sleep(0.01)

    def prove(self, *children: Episode, least: int = 10) -> list[Turn]:
        """End the session, prove the trace, and return the session's turns."""
        from scripted import prove

        return prove(self.run, self.chat, self.policy, [self.session.end(), *children], least=least)


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., Any]:
    """Return what opens a proxy and a session of it: `with stage(chat, say, tools=..., hangs=...) as it:`."""
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    from scripted import Scripted

    from agentgym_tok.proxy import Proxy

    @contextmanager
    def open_stage(
        chat: ChatFormat, say: "Say", tools: Sequence[Mapping[str, Any]] = (), hangs: Sequence[int] = ()
    ) -> Iterator[Stage]:
        policy, run = Scripted(chat, say, tools=tools, hangs=hangs), tmp_path / "run"
        with TraceStore(run, chat=chat) as store, Proxy(policy, chat, store) as proxy:
            yield Stage(run, chat, policy, proxy, proxy.open(task="client"))

    return open_stage


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a mistake in it."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "add.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "check.py").write_text("from add import add\nassert add(2, 3) == 5, add(2, 3)\n")
    for command in (
        ["init", "-q"],
        ["config", "user.name", "toy"],
        ["config", "user.email", "toy@example.org"],
        ["add", "-A"],
        ["commit", "-qm", "Begin"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder
