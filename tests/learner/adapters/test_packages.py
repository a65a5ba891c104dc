"""Nothing of another trainer is needed until its objects are made, and then its absence is said."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import fixed
import pytest

from agentgym_tok.errors import MissingExtra
from agentgym_tok.learner.adapters import prime_rl, skyrl, tinker, verl
from agentgym_tok.learner.adapters.packages import imported

MAKERS: dict[str, Callable[[Any], Any]] = {
    "tinker": lambda rows: tinker.datum(rows[0]),
    "prime_rl": lambda rows: prime_rl.training_sample(rows[0], env_name="world"),
    "skyrl": skyrl.generator_output,
    "verl.protocol": verl.data_proto,
    "verl": lambda rows: verl.agent_loop_output(rows[0]),
    "trl": lambda _: importlib.import_module("agentgym_tok.learner.adapters.trl_sdar"),
}


@pytest.mark.parametrize("package", MAKERS)
def test_a_missing_package_is_named_with_what_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if package in {"verl.protocol", "trl"}:
        pytest.importorskip("torch", reason="the extra torch is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "agentgym_tok.learner.adapters.trl_sdar", raising=False)
    with pytest.raises(MissingExtra, match=f"its objects need {package.partition('.')[0]}.*next: .*install"):
        MAKERS[package](fixed.with_advantages(fixed.rich()))


def test_the_error_says_what_could_not_be_imported() -> None:
    with pytest.raises(MissingExtra, match="No module named 'no_such_package'"):
        imported("no_such_package.inside", "pip install nothing")
