"""Plug-ins are found by their entry points, imported when they are used, and break nothing when they are broken."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.cli.main import main
from agentgym_tok.cli.worlds import WorldOptions, env_maker
from agentgym_tok.envs.searchqa import open_retriever
from agentgym_tok.errors import ConfigError, UnknownName
from agentgym_tok.plugins import GROUPS, declared, find_plugin, plugin_names
from agentgym_tok.policies import load_policy
from agentgym_tok.skills import load_bank, make_retriever

ROOT = Path(__file__).resolve().parents[1]
CHAT = ChatFormat.builtin()
Capture = pytest.CaptureFixture[str]
Install = Callable[..., None]

MODULE = """
import numpy as np
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.policies import BasePolicy
from agentgym_tok.types import Completion

def world(chat, *, split="valid_seen", max_steps: int = 3):
    return ALFWorldEnv(chat, split=split, max_steps=max_steps)

def no_world(chat):
    return "a world"

def failing_world(chat):
    raise RuntimeError("out of clay")

class Policy(BasePolicy):
    name = "mine"

    def __init__(self, target, chat, *, size: int = 1):
        self.given = target, size
        self.chat = chat

    def answer(self, request):
        return Completion(np.array(self.chat.stop_ids[:1]), engine="mine")

def no_policy(target, chat):
    return 17

def text_policy(target, chat):
    return "expert"

class Retriever:
    name = "mine"

    def __init__(self, shelf="all"):
        self.shelf = shelf

    def search(self, queries, k):
        return [[] for _ in queries]

    def close(self):
        pass

class Corpus(Retriever):
    def __init__(self, corpus):
        self.corpus = corpus

def skills(bank, step=1):
    from agentgym_tok.skills import Full
    return Full(bank, mistakes=step)

def half(*arguments, **options):
    return object()

number = 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what puts a package with entry points where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(
        points: Mapping[str, Mapping[str, str]], *, package: str = "some-clay", version: str = "1.2", **modules: str
    ) -> None:
        info = tmp_path / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines = [
            line for group, entries in points.items() for line in (f"[{group}]", *map(" = ".join, entries.items()), "")
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for name, text in {"some_clay": MODULE, **modules}.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)

    return put


ALL = {
    "agentgym_tok.worlds": {"clay": "some_clay:world"},
    "agentgym_tok.policies": {"potter": "some_clay:Policy"},
    "agentgym_tok.learners": {"kiln": "some_clay:half"},
    "agentgym_tok.retrievers": {"shelf": "some_clay:Retriever", "stock": "some_clay:Corpus"},
    "agentgym_tok.skill_retrievers": {"craft": "some_clay:skills"},
}


def test_reading_what_is_declared_imports_nothing(install: Install) -> None:
    install(ALL)
    assert plugin_names("retriever") == ["shelf", "stock"]
    found = {kind: [str(plugin) for plugin in declared(kind)] for kind in GROUPS}
    assert found["world"] == ["world 'clay' of some-clay 1.2 (some_clay:world)"]
    assert all(found.values())
    assert "some_clay" not in sys.modules
    find_plugin("world", "clay").load()
    assert "some_clay" in sys.modules


def test_the_library_imports_no_plug_in_and_reads_no_declaration_for_its_own_names(
    install: Install, tmp_path: Path
) -> None:
    install(ALL, some_clay="import pathlib; p = pathlib.Path(__file__).with_name('imported'); p.touch()\n" + MODULE)
    code = """
import importlib.metadata as metadata
reads = []
plain = metadata.entry_points
metadata.entry_points = lambda **group: reads.append(group) or plain(**group)
import agentgym_tok, agentgym_tok.harness, agentgym_tok.cli.worlds, gymnasium
from agentgym_tok.policies import load_policy
load_policy("expert", agentgym_tok.ChatFormat.builtin())
gymnasium.make("agentgym_tok/SearchQA-v0", retriever="bm25").reset(seed=0)
assert not [group for group in reads if "agentgym_tok" in str(group)], reads
import sys
assert "some_clay" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=ROOT)
    assert not (tmp_path / "imported").exists()


def test_each_kind_is_used_by_its_name(install: Install) -> None:
    install(ALL)
    env = env_maker("clay", WorldOptions(max_steps=2), CHAT)()
    assert env.unwrapped.max_steps == 2  # type: ignore[attr-defined]
    policy = load_policy("potter:a/b?size=3", CHAT)
    assert policy.given == ("a/b", 3)  # type: ignore[attr-defined]
    assert open_retriever("shelf", shelf="low").shelf == "low"  # type: ignore[attr-defined]
    rule = make_retriever("craft", load_bank("alfworld"), step=0)
    assert rule.name == "full"


def test_search_qa_gives_a_corpus_to_retrievers_that_take_one(install: Install) -> None:
    install(ALL)
    from agentgym_tok.envs.searchqa.env import make_searchqa_engine

    plain = make_searchqa_engine(retriever="shelf").retriever
    stocked = make_searchqa_engine(retriever="stock").retriever
    assert plain.shelf == "all"  # type: ignore[attr-defined]
    assert len(stocked.corpus) > 100  # type: ignore[attr-defined]


def made(make: Callable[[], object]) -> object:
    return make()


@pytest.mark.parametrize(
    ("points", "use", "words"),
    [
        (("policies", "absent_clay:Policy"), "policy", "ModuleNotFoundError: No module named 'absent_clay'"),
        (("policies", "some_clay:Absent"), "policy", "AttributeError: .*'Absent'"),
        (("policies", "raising_clay:Policy"), "policy", "ZeroDivisionError"),
        (("policies", "leaving_clay:Policy"), "policy", "SystemExit"),
        (("policies", "some_clay:number"), "policy", "got: int; expected: a class or a function"),
        (("policies", "some_clay:no_policy"), "policy", "this is no policy.*got: int"),
        (("policies", "some_clay:text_policy"), "policy", "got: a text; expected: a policy"),
        (("worlds", "some_clay:no_world"), "world", "got: str; expected: a TokenEnv"),
        (("worlds", "some_clay:failing_world"), "world", "RuntimeError: out of clay"),
        (("retrievers", "some_clay:half"), "retriever", "got: object; expected: a Retriever"),
        (("skill_retrievers", "some_clay:half"), "skills", "got: object; expected: a skills Retriever"),
    ],
)
def test_a_broken_plug_in_is_named_with_its_package(
    install: Install, points: tuple[str, str], use: str, words: str
) -> None:
    install({f"agentgym_tok.{points[0]}": {"odd": points[1]}}, raising_clay="1 / 0", leaving_clay="raise SystemExit(3)")
    uses: Mapping[str, Callable[[], object]] = {
        "policy": lambda: load_policy("odd", CHAT),
        "world": lambda: made(env_maker("odd", WorldOptions(), CHAT)),
        "retriever": lambda: open_retriever("odd"),
        "skills": lambda: make_retriever("odd", load_bank("alfworld")),
    }
    with pytest.raises(ConfigError, match=words) as caught:
        uses[use]()
    assert "'odd' of some-clay 1.2" in str(caught.value)
    assert "next: repair, update or uninstall some-clay" in str(caught.value)
    assert load_policy("expert", CHAT).name == "expert"


def test_a_name_of_the_librarys_own_stays_its_own(install: Install) -> None:
    install({"agentgym_tok.policies": {"expert": "raising_clay:Policy"}}, raising_clay="1 / 0")
    assert load_policy("expert", CHAT).name == "expert"
    (plugin,) = declared("policy", ["expert"])
    assert plugin.flaw == "the library has this name itself"
    assert plugin_names("policy", ["expert"]) == []
    with pytest.raises(ConfigError, match="has this name itself"):
        plugin.load()


def test_a_name_that_two_packages_declare_is_nobodys(install: Install) -> None:
    install({"agentgym_tok.policies": {"potter": "some_clay:Policy", "glazer": "some_clay:Policy"}})
    install({"agentgym_tok.policies": {"potter": "some_clay:Policy"}}, package="other-clay", version="3")
    with pytest.raises(ConfigError, match=r"declared more than once, by other-clay, some-clay"):
        load_policy("potter", CHAT)
    assert plugin_names("policy") == ["glazer"]
    assert load_policy("glazer", CHAT).name == "mine"


def test_a_name_that_nobody_could_write_is_left_out(install: Install) -> None:
    install({"agentgym_tok.policies": {"pot?ter": "some_clay:Policy"}})
    (plugin,) = declared("policy")
    assert plugin.flaw is not None
    assert "begins with a letter" in plugin.flaw


def test_an_unknown_name_suggests_plug_ins_too(install: Install) -> None:
    install(ALL)
    with pytest.raises(UnknownName, match=r"unknown policy; .*did you mean potter"):
        load_policy("poter", CHAT)
    with pytest.raises(UnknownName, match=r"unknown world; .*did you mean clay"):
        env_maker("clayy", WorldOptions(), CHAT)
    with pytest.raises(UnknownName, match=r"unknown retriever; .*did you mean shelf"):
        open_retriever("shelff")


def test_a_world_gets_the_options_that_it_takes_or_that_were_chosen(install: Install) -> None:
    install(ALL)
    env = env_maker("clay", WorldOptions(env={"max_steps": 7}), CHAT)()
    assert env.unwrapped.max_steps == 7  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match=r"options do not fit the world; .*'source'; expected: chat, split, max_steps"
    ):
        env_maker("clay", WorldOptions(source="official"), CHAT)
    with pytest.raises(ConfigError, match=r"options do not fit the world; .*'colour'"):
        env_maker("clay", WorldOptions(env={"colour": "red"}), CHAT)
    # What a command line can say is text, which is read by the parameter's type.
    assert env_maker("clay", WorldOptions(env={"max_steps": "8"}), CHAT)().unwrapped.max_steps == 8  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"--env of world 'clay'.*max_steps; got: many"):
        env_maker("clay", WorldOptions(env={"max_steps": "many"}), CHAT)


def test_list_shows_plug_ins_with_package_and_version_and_names_the_broken(install: Install, capsys: Capture) -> None:
    install({**ALL, "agentgym_tok.policies": {"potter": "some_clay:Policy", "odd": "absent_clay:x", "random": "a:b"}})
    assert main(["list"]) == 0
    table = capsys.readouterr().out.partition("plug-ins")[2]
    assert re.search(r"world +│ clay +│ some-clay 1\.2 │ ok", table)
    assert re.search(r"policy +│ potter +│ some-clay 1\.2 │ ok", table)
    assert re.search(r"policy +│ odd +│ some-clay 1\.2 │ broken: ModuleNotFoundError", table)
    assert re.search(r"policy +│ random +│ some-clay 1\.2 │ broken: the library has this name", table)
    assert re.search(r"skill retriever │ craft", table)


def test_a_learner_is_made_by_its_name_and_asked_for_what_it_must_have(install: Install) -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    del torch
    from agentgym_tok.learner.learners import make_learner
    from agentgym_tok.learner.losses import LossConfig
    from agentgym_tok.learner.torch_config import TorchConfig

    good = """
class Kiln:
    version = "0"
    def __init__(self, model, chat, loss, config):
        self.loss, self.given = loss, (model, config)
    def update(self, batch): return {}
    def weights(self): return {}
    def state(self): return {}
    def load_state(self, state): pass
"""
    install({"agentgym_tok.learners": {"kiln": "kiln:Kiln", "half": "some_clay:half"}}, kiln=good)
    config = TorchConfig()
    assert make_learner("kiln", "some/model", CHAT, LossConfig(), config).given == ("some/model", config)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"'half' of some-clay.*object without loss, version, update"):
        make_learner("half", "m", CHAT, LossConfig(), config)
    with pytest.raises(UnknownName, match="unknown learner"):
        make_learner("oven", "m", CHAT, LossConfig(), config)


TRAINED = """
world = "clay"
model = "new:qwen2?hidden=32&layers=1&heads=2&kv_heads=1&context=2048"
policy = "hf:{model}?device=cpu&batch_size=1"
objective = "dapo"
learner_class = "kiln"
steps = 1
tasks = 1
group_size = 2
max_steps = 2
sampling = { max_tokens = 6 }
[learner]
device = "cpu"
"""

KILN = """
from agentgym_tok.learner.torch_learner import TorchLearner
updates = []
class Kiln(TorchLearner):
    def update(self, batch):
        updates.append(batch)
        return super().update(batch)
"""


def test_a_plug_ins_world_is_trained_on_by_a_plug_ins_learner(
    install: Install, tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    install({**ALL, "agentgym_tok.learners": {"kiln": "kiln:Kiln"}}, kiln=KILN)
    (tmp_path / "config.toml").write_text(TRAINED, encoding="utf-8")
    assert main(["train", str(tmp_path / "config.toml"), "--out", str(tmp_path / "run")]) == 0
    assert "the model is in" in capsys.readouterr().out
    assert len(sys.modules["kiln"].updates) == 1
    assert main(["trace", "verify", str(tmp_path / "run")]) == 0


# ---- the template


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the template as a user would, without the network, into a folder of its own."""
    folder = tmp_path_factory.mktemp("template")
    shutil.copytree(
        ROOT / "examples" / "plugin", folder / "plugin", ignore=shutil.ignore_patterns("build", "*.egg-info")
    )
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]
    target = ["--target", str(folder / "site"), str(folder / "plugin")]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, *target], check=True, capture_output=True)
    return folder / "site"


def run(site: Path, *arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def cli(site: Path, *arguments: str, cwd: Path) -> str:
    return run(site, "-W", "error", "-m", "agentgym_tok.cli.main", *arguments, cwd=cwd)


def test_the_template_installs_and_is_listed(site: Path, tmp_path: Path) -> None:
    table = cli(site, "list", cwd=tmp_path).partition("plug-ins")[2]
    for kind, name in (("world", "guess"), ("policy", "guesser"), ("retriever", "titles")):
        assert re.search(rf"{kind} +│ {name} +│ agentgym-tok-guess 0\.1\.0 │ ok", table)


def test_the_templates_world_is_played_by_its_policy_and_the_trace_is_proved(site: Path, tmp_path: Path) -> None:
    out = cli(site, "eval", "guess", "--policy", "guesser", "--episodes", "5", "--out", "run", cwd=tmp_path)
    assert "100.0 %" in out
    proved = cli(site, "trace", "verify", "run", cwd=tmp_path)
    assert "5 episodes" in proved
    assert "verified: every law holds" in proved
    chosen = ["--policy", "guesser:?boldness=0.5", "--env", "limit=9", "--episodes", "3", "--out", "small"]
    assert "100.0 %" in cli(site, "eval", "guess", *chosen, cwd=tmp_path)


def test_the_templates_retriever_answers_search_qa(site: Path, tmp_path: Path) -> None:
    code = """
import agentgym_tok, gymnasium
env = gymnasium.make("agentgym_tok/SearchQA-v0", retriever="titles", prompting="search_r1")
env.reset(seed=0)
chat = env.unwrapped.chat
title = next(iter(env.unwrapped.engine.retriever._passages)).title
_, _, _, _, info = env.step(chat.encode_turn(f"<search>{title}</search>"))
print(info["passages"][0].title == title if hasattr(info["passages"][0], "title") else title in info["text"])
"""
    assert run(site, "-c", code, cwd=tmp_path) == "True\n"


def test_the_templates_own_tests_pass(site: Path, tmp_path: Path) -> None:
    tests = ROOT / "examples" / "plugin" / "tests"
    run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests), cwd=tmp_path)
