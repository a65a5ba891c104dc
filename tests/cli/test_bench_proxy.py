"""The proxy's benchmark notices what was lost or crossed, and runs."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra serve is not installed")
pytest.importorskip("aiohttp", reason="the extra engines is not installed")

import requests

from agentgym_tok import ChatFormat
from agentgym_tok.cli.bench_proxy import _compare
from agentgym_tok.cli.main import main
from agentgym_tok.proxy import Proxy
from agentgym_tok.trace import TraceStore

CHAT = ChatFormat.builtin()


def test_a_turn_that_was_lost_or_crossed_is_counted(tmp_path: Path) -> None:
    def policy(ids_T: Any) -> Any:
        turn_T = CHAT.encode_turn(f"answer of {len(ids_T)}")
        return turn_T, [-0.5] * len(turn_T)

    with TraceStore(tmp_path, chat=CHAT) as store, Proxy(policy, CHAT, store) as proxy:
        with proxy.session(task="7") as session:
            messages = [{"role": "system", "content": "You are agent 7."}, {"role": "user", "content": "hello"}]
            headers = {"authorization": f"Bearer {session.key}"}
            body = {"model": "m", "messages": messages}
            url = f"{proxy.openai_url}/chat/completions"
            answer = requests.post(url, json=body, headers=headers, timeout=10).json()["choices"][0]["message"][
                "content"
            ]
        with proxy.session(task="8") as other:
            headers = {"authorization": f"Bearer {other.key}"}
            requests.post(url, json=body, headers=headers, timeout=10)  # with the marker of another session
    assert _compare(tmp_path, {session.id: [answer]}) == 0
    assert _compare(tmp_path, {session.id: [answer, answer]}) == 1
    assert _compare(tmp_path, {session.id: ["another answer"]}) == 1
    assert _compare(tmp_path, {session.id: [answer], other.id: [answer]}) == 1


@pytest.mark.deep
def test_the_benchmark_runs_and_loses_nothing(tmp_path: Path) -> None:
    options = ["--seconds", "1", "--soak-s", "5", "--streams", "16", "--soak-words", "60", "--out", str(tmp_path / "o")]
    assert main(["bench", "proxy", *options]) == 0
    figures = json.loads((tmp_path / "o").read_text(encoding="utf-8"))["figures"]
    assert figures["ours: failed, streamed"] == figures["soak: lost or crossed"] == figures["soak: failed"] == 0
    assert figures["soak: sessions"] >= 16
