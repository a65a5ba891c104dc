"""An agent that nobody here wrote, recorded token by token: it speaks OpenAI's chat completions, and knows no ids.

Run it: `python examples/foreign_agent.py` (extra `serve`). The policy is a small stand-in; name an engine instead, such
as `vllm:URL#MODEL`. Any client of OpenAI's or Anthropic's APIs does as well as the dozen lines of `agent`: it needs a
base URL and a key.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import requests

from agentgym_tok import ChatFormat
from agentgym_tok.proxy import Proxy
from agentgym_tok.trace import TraceStore, rows, verify

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def agent(question: str) -> str:
    """Ask, run the tools that the model calls, and return its answer. It finds the model by environment variables."""
    url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    messages = [{"role": "user", "content": question}]
    while True:
        body = {"model": "any", "messages": messages, "tools": TOOLS}
        headers = {"Authorization": f"Bearer {key}"}
        answer = requests.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60).json()
        message = answer["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            numbers = json.loads(call["function"]["arguments"])["numbers"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(sum(numbers))})


def main() -> None:
    """Let the agent work in a session, reward it, and look at what there is to train on."""
    chat = ChatFormat.builtin()
    calls = '<tool_call>\n{"name": "add", "arguments": {"numbers": [19, 23]}}\n</tool_call>'

    def policy(ids_T: np.ndarray) -> tuple[np.ndarray, list[float]]:
        turn_T = chat.encode_turn("It is 42." if "<|im_start|>tool" in chat.decode(ids_T) else calls)
        return turn_T, [-0.5] * len(turn_T)  # a model returns what it sampled, and how likely it was

    run = Path(tempfile.mkdtemp()) / "run"
    with TraceStore(run, chat=chat) as store, Proxy(policy, chat, store) as proxy:
        with proxy.session(task="19 + 23") as session:
            os.environ |= session.environ
            answer = agent("How much is 19 + 23?")
            session.reward(float("42" in answer))
        episode = session.episode
    for turn in episode.turns:
        print(f"turn {turn.index}: {turn.edge.kind}, {len(turn.context)} ids seen, {len(turn.completion.ids_T)} drawn")
    (row,) = rows(episode)
    print(f"return {episode.return_}; one row of {len(row.ids_T)} ids trains {int(row.mask_T.sum())}")
    found = verify(run, chat)
    sums = found.accounting[0]
    print(f"{len(found.breaches)} breaches; {sums.trained} of {sums.sampled} sampled ids trained")


if __name__ == "__main__":
    main()
