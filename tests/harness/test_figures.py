"""Figures: what a rollout comes to agrees with its accounting and its turns."""

from pathlib import Path

import pytest
from play import CHAT, Lines, Script, acts, add, anything, calls, everyone, make_env, says

from agentgym_tok.errors import PolicyError, TransientPolicyError
from agentgym_tok.harness import Budget, Harness, Retries, Subagents, SummaryCompaction, Toolbox, WindowCompaction
from agentgym_tok.harness.figures import figures
from agentgym_tok.trace import account


def failures(found: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("failures/"): value for name, value in found.items() if "/" in name and value}


@pytest.mark.parametrize("seed", range(3))
def test_tokens_agree_with_the_accounting(seed: int) -> None:
    harness = Harness(
        Script(anything),
        CHAT,
        compaction=SummaryCompaction(at_turns=2),
        retries=Retries(invalid_action=1, feedback=bool(seed), tool=1),
        tools=Toolbox(add),
        subagents=Subagents(),
        budget=Budget(turns=30),
    )
    for episode in harness.run_many(make_env, range(4), seed=seed):
        found, counts = figures(episode), account(episode)
        assert found["sampled_tokens"] == counts.sampled
        assert found["trained_share"] * counts.sampled == pytest.approx(counts.trained)
        assert found["subagents"] == len(everyone([episode])) - 1
        assert (found["return"], found["turns"]) == (episode.return_, len(episode.steps))
        assert found["seconds"] > 0


def test_retries_are_attempts_beyond_the_first_of_turns_and_tools_and_words_about_a_turn() -> None:
    tried: list[int] = []

    def fetch() -> str:
        """Fetch a page."""
        tried.append(1)
        if len(tried) < 3:
            raise OSError("no route")
        return "found"

    lines = [TransientPolicyError("busy"), acts("fly"), calls(("fetch", {})), acts("look")]
    retries = Retries(invalid_action=1, feedback=True, policy=1, tool=2)
    harness = Harness(Lines(*lines), CHAT, retries=retries, tools=Toolbox(fetch))
    found = figures(harness.run(make_env(max_steps=1), task=0))
    assert found["retries"] == 1 + 1 + 2
    assert failures(found) == {"policy": 1}  # the page was found in the end


def test_rewrites_are_counted() -> None:
    harness = Harness(Lines(), CHAT, compaction=WindowCompaction(at_turns=2, keep=0))
    assert figures(harness.run(make_env(max_steps=5), task=0))["compactions"] == 2


def test_failures_stand_under_their_boundary_once(tmp_path: Path) -> None:
    lines = [calls(("delegate", {"task": "x"}), ("add", {"a": "x"})), PolicyError("the engine is down"), acts("look")]
    harness = Harness(Lines(*lines), CHAT, subagents=Subagents(), tools=Toolbox(add))
    assert failures(figures(harness.run(make_env(max_steps=1), task=0))) == {"policy": 1, "tool": 1}
    broken = Harness(Lines(PolicyError("no such model")), CHAT).run(make_env(), task=0)
    assert failures(figures(broken)) == {"policy": 1}


def test_a_world_that_did_not_start_has_figures() -> None:
    class Closed(type(make_env())):  # type: ignore[misc]
        def reset(self, **_: object) -> None:
            raise OSError("no disk")

    (episode,) = Harness(Lines(), CHAT).run_many(lambda: Closed(CHAT), [0])
    found = figures(episode)
    assert failures(found) == {"world": 1}
    assert (found["return"], found["turns"], found["sampled_tokens"]) == (0, 0, 0)
    assert not found.keys() & {"success", "seconds", "trained_share"}


def test_demonstrations_are_no_samples() -> None:
    found = figures(Harness("expert", CHAT).run(make_env(max_steps=50), task=0))
    assert (found["success"], found["sampled_tokens"]) == (1, 0)
    assert "trained_share" not in found
    assert figures(Harness(Lines(says("x")), CHAT).run(make_env(max_steps=1), task=0))["trained_share"] == 1
