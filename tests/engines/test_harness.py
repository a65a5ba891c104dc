"""The harness over real engines: summaries and subagents are sampled, logged, verified and shown like any turn."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

from agentgym_tok import ChatFormat, Completion, Message, Policy, Request, Sampling
from agentgym_tok.harness import Budget, Harness, Subagents, SummaryCompaction, Toolbox
from agentgym_tok.harness.tools.retriever import search_tool
from agentgym_tok.policies import BasePolicy
from agentgym_tok.policies.hf import HFPolicy
from agentgym_tok.trace import Episode, TraceStore, account, rescore, rows, verify
from agentgym_tok.trace.viewer.view import write_view
from agentgym_tok.types import Scorer, ToolCall

pytestmark = pytest.mark.engine

TOLERANCE = 1e-4


@pytest.fixture(params=["hf", "vllm"])
def engine(request: pytest.FixtureRequest, folder: Path, chat: ChatFormat) -> Iterator[Policy]:
    """Return the model in transformers, or behind a real vLLM."""
    if request.param == "hf":
        yield HFPolicy(folder, chat, device="cpu", version="default")
        return
    from agentgym_tok.policies.http.vllm import VLLMPolicy

    with VLLMPolicy(request.getfixturevalue("server").url, chat) as made:
        yield made


def drawn(page: Path) -> Iterator[str]:
    """Yield what a browser makes of a page, where there is one; the viewer's own tests look closer."""
    names = (os.environ.get("AGENTGYM_TOK_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    for program in list(filter(None, map(shutil.which, filter(None, names))))[:1]:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        asked = [program, *options, page.as_uri()]
        yield subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120).stdout


def prove(episode: Episode, run: Path, chat: ChatFormat, scorer: Scorer) -> float:
    """Check the laws, the accounting and the log-probabilities, and show the run as a page."""
    found = verify(run, chat)
    assert found.ok, found.breaches
    sums = account(episode)
    assert sums.complete
    assert sums.trained > 0
    assert abs(sum(row.weight for row in rows(episode)) - 1) < 1e-9
    again = rescore(run, scorer, tolerance=TOLERANCE)
    assert again.ok, again.differences
    page = run / "page.html"
    write_view(run, page)
    for shown in drawn(page):
        assert episode.head.task in shown
    return max(one.largest_abs for one in again.judged)


def test_an_episode_is_compacted_three_times_by_its_own_summaries(
    engine: Policy,
    chat: ChatFormat,
    scorer: HFPolicy,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    compaction = SummaryCompaction(at_turns=2, keep=1, max_tokens=32, attempts=4)
    with TraceStore(tmp_path, chat=chat) as store:
        harness = Harness(engine, chat, store=store, sampling=Sampling(max_tokens=24), compaction=compaction)
        env = gym.make("agentgym_tok/ALFWorld-v0", chat=chat, max_steps=10)
        episode = harness.run(env, task=0)
    rewrites = [turn for turn in episode.turns if turn.edge.kind == "compaction"]
    assert len({turn.index for turn in rewrites}) >= 3
    summaries = [turn for turn in episode.turns if turn.facts.get("aside") == "summary" and turn.used]
    assert len(summaries) >= 3
    assert all(turn.completion.origin == "sampled" for turn in summaries)
    for turn in rewrites:
        if turn.edge.reason == "summary":
            source = next(one for one in summaries if one.index == turn.edge.source)
            assert any(span.ids_T.tolist() == source.completion.ids_T.tolist() for span in turn.context.spans)
    record_property("largest difference", prove(episode, tmp_path, chat, scorer))


class Delegating(BasePolicy):
    """Begin with calls that are written for the policy, since no small model makes them by itself."""

    name = "delegating"

    def __init__(self, engine: Policy, calls: Sequence[int]) -> None:
        self._engine, self._calls = engine, calls
        self.batches: list[int] = []

    def generate(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        self.batches.append(len(requests))
        if len(self.batches) == 1:
            return [Completion(self._calls, origin="forced", sampling=request.sampling) for request in requests]  # type: ignore[arg-type]
        return self._engine.generate(requests)


def test_three_children_work_on_a_question_at_the_same_time(
    engine: Policy,
    chat: ChatFormat,
    scorer: HFPolicy,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    if not chat.writes_calls(with_text=False):
        pytest.skip("this model's template has no word for calls")
    env = gym.make("agentgym_tok/SearchQA-v0", chat=chat, prompting="react", max_steps=3)
    parts = ("who wrote it", "where it was written", "when it was written")
    calls = tuple(ToolCall("delegate", {"task": f"Find out {part}."}) for part in parts)
    policy = Delegating(engine, chat.write(Message("assistant", "", tool_calls=calls)).tolist())
    retriever = env.unwrapped.engine.retriever  # type: ignore[attr-defined]
    children = Subagents(tools=Toolbox(search_tool(retriever)), sampling=Sampling(max_tokens=16))
    with TraceStore(tmp_path, chat=chat) as store:
        harness = Harness(
            policy, chat, store=store, sampling=Sampling(max_tokens=24), subagents=children, budget=Budget(turns=40)
        )
        episode = harness.run(env, task=0)
    assert episode.turns[0].completion.origin == "forced"
    assert len(episode.children) == 3
    assert policy.batches[1] == 3
    assert all(child.turns[0].completion.origin == "sampled" for child in episode.children)
    answers = [message for message in episode.turns[1].messages if message.role == "tool"]
    assert [message.name for message in answers] == ["delegate"] * 3
    record_property("largest difference", prove(episode, tmp_path, chat, scorer))
