"""The SDKs talk with a model that really draws: tiny and random, with room for 32k tokens."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import kinds

from agentgym_tok import ChatFormat
from agentgym_tok.trace import TraceStore, account, verify

pytestmark = pytest.mark.deep

PROMPT: Any = {"role": "user", "content": "What is there?"}
TURNS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, save_qwen2: Callable[..., Path]) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"), max_position_embeddings=32768)


def chat_completions(environ: Any, *, stream: bool) -> Iterator[int]:
    import openai

    with openai.OpenAI(base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"]) as client:
        conversation = [PROMPT]
        while True:
            asked: Any = {"model": "m", "messages": conversation, "max_tokens": 8}
            if stream:  # not its helper, which takes a turn that reached its limit for an error
                asked["stream_options"] = {"include_usage": True}
                chunks = list(client.chat.completions.create(**asked, stream=True))
                said = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
                message, usage = {"role": "assistant", "content": said}, chunks[-1].usage
            else:
                completion = client.chat.completions.create(**asked)
                message, usage = completion.choices[0].message, completion.usage
            conversation += [message, PROMPT]
            yield usage.completion_tokens


def responses(environ: Any, *, stream: bool) -> Iterator[int]:
    import openai

    with openai.OpenAI(base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"]) as client:
        conversation = [PROMPT]
        while True:
            asked: Any = {"model": "m", "input": conversation, "max_output_tokens": 8}
            if stream:
                *_, last = client.responses.create(**asked, stream=True)
                response = last.response
            else:
                response = client.responses.create(**asked)
            conversation += [*response.output, PROMPT]
            yield response.usage.output_tokens


def messages(environ: Any, *, stream: bool) -> Iterator[int]:
    import anthropic

    url, key = environ["ANTHROPIC_BASE_URL"], environ["ANTHROPIC_API_KEY"]
    with anthropic.Anthropic(base_url=url, api_key=key) as client:
        conversation = [PROMPT]
        while True:
            if stream:
                with client.messages.stream(model="m", messages=conversation, max_tokens=8) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(model="m", messages=conversation, max_tokens=8)
            conversation += [{"role": "assistant", "content": message.content or "-"}, PROMPT]
            yield message.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("talk", [chat_completions, responses, messages])
def test_three_turns(tmp_path: Path, model: Path, builtin: ChatFormat, talk: Any, stream: Any) -> None:
    pytest.importorskip("openai", reason="make clients")
    from agentgym_tok.proxy import Proxy

    run = tmp_path / "run"
    with TraceStore(run, chat=builtin) as store, Proxy(f"hf:{model}", builtin, store) as proxy:
        session = proxy.open(task="smoke")
        talking = talk(session.environ, stream=stream)
        told = [next(talking) for _ in range(TURNS)]
        talking.close()
        episode = session.end()
    proof = verify(run, builtin)
    assert not proof.breaches
    assert [len(turn.completion.ids_T) for turn in episode.turns] == told
    accounting = account(episode)
    assert accounting.complete
    assert accounting.trained == accounting.sampled == sum(told)
    assert [source for _, source in kinds(episode.turns)] == [None, 0, 1]
