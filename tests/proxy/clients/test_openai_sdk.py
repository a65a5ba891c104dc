"""The package `openai` through the proxy: chat completions and responses, whole and streamed."""

import asyncio
from typing import Any

import pytest
from scripted import kinds, says
from talk import EDIT, HANG, LAST, LOOK, break_off, check_talk, say

from agentgym_tok import ChatFormat

openai = pytest.importorskip("openai", reason="make clients")
pytestmark = pytest.mark.deep

TOOL: Any = {"type": "function", "function": LOOK}
FLAT: Any = {"type": "function", **LOOK}
PROMPT: list[Any] = [
    {"role": "system", "content": "You look at things."},
    {"role": "user", "content": "What is there? <|im_end|>"},
]


def results(calls: Any) -> list[Any]:
    return [{"role": "tool", "tool_call_id": call.id, "content": f"{call.function.arguments} ok"} for call in calls]


def chat_whole(client: Any, conversation: list[Any]) -> Any:
    return client.chat.completions.create(model="m", messages=conversation, tools=[TOOL]).choices[0].message


def chat_streamed(client: Any, conversation: list[Any]) -> Any:
    with client.chat.completions.stream(model="m", messages=conversation, tools=[TOOL]) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message


@pytest.mark.parametrize("ask", [chat_whole, chat_streamed])
def test_chat_completions(stage: Any, chat: ChatFormat, ask: Any) -> None:
    with stage(chat, say, [TOOL], hangs=[HANG]) as it:
        client = openai.OpenAI(base_url=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key)
        conversation = list(PROMPT)
        while (number := len(it.policy.drawn)) < LAST:
            if number == EDIT:  # what was called and answered in between is forgotten
                conversation = conversation[:2] + conversation[-2:]
            if number == HANG:
                break_off(
                    client.chat.completions.create(model="m", messages=conversation, tools=[TOOL], stream=True),
                    it.policy,
                )
                it.settle()
                continue
            message = ask(client, conversation)
            conversation += [message, *results(message.tool_calls or ())]
            if not message.tool_calls:
                conversation.append({"role": "user", "content": f"And then, {number}?"})
        turns = it.prove()
    check_talk(turns, attempts=ask is chat_streamed)


def responses_whole(client: Any, conversation: list[Any], **fields: Any) -> Any:
    return client.responses.create(model="m", input=conversation, tools=[FLAT], **fields)


def responses_streamed(client: Any, conversation: list[Any], **fields: Any) -> Any:
    with client.responses.stream(model="m", input=conversation, tools=[FLAT], **fields) as events:
        for _ in events:
            pass
        return events.get_final_response()


def outputs(response: Any, number: int) -> list[Any]:
    """Answer the calls of a response, or go on."""
    calls = [item for item in response.output if item.type == "function_call"]
    said = [{"type": "function_call_output", "call_id": call.call_id, "output": call.arguments} for call in calls]
    return said or [{"role": "user", "content": f"And then, {number}?"}]


@pytest.mark.parametrize("ask", [responses_whole, responses_streamed])
def test_responses(stage: Any, chat: ChatFormat, ask: Any) -> None:
    with stage(chat, say, [TOOL], hangs=[HANG]) as it:
        client = openai.OpenAI(base_url=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key)
        conversation = list(PROMPT)
        while (number := len(it.policy.drawn)) < LAST:
            if number == EDIT:
                conversation = conversation[:2] + conversation[-2:]
            if number == HANG:
                break_off(client.responses.create(model="m", input=conversation, tools=[FLAT], stream=True), it.policy)
                it.settle()
                continue
            response = ask(client, conversation)
            conversation += [*response.output, *outputs(response, number)]
        turns = it.prove()
    check_talk(turns, attempts=ask is responses_streamed)


@pytest.mark.parametrize("ask", [responses_whole, responses_streamed])
def test_responses_that_name_the_one_before(stage: Any, chat: ChatFormat, ask: Any) -> None:
    with stage(chat, say, [TOOL]) as it:
        client = openai.OpenAI(base_url=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key)
        response = ask(client, "What is there?", instructions="You look at things.")
        for number in range(1, LAST):
            earlier = {"previous_response_id": response.id, "instructions": "You look at things."}
            response = ask(client, outputs(response, number), **earlier)
        turns = it.prove()
    assert kinds(turns) == [("fresh_prompt", None), *(("continuation", place) for place in range(LAST - 1))]


def test_many_conversations_at_a_time(stage: Any, builtin: ChatFormat) -> None:
    async def talk(client: Any, name: str) -> None:
        conversation: list[Any] = [{"role": "user", "content": f"I am {name}."}]
        for number in range(3):
            answer = await client.chat.completions.create(model="m", messages=conversation)
            conversation += [answer.choices[0].message, {"role": "user", "content": f"And then, {number}?"}]

    async def talk_all(client: Any) -> None:
        async with client:
            await asyncio.gather(*(talk(client, name) for name in ("Ann", "Bob", "Cem", "Dag")))

    with stage(builtin, lambda _, number: says(f"It is turn {number}.")) as it:
        asyncio.run(
            talk_all(openai.AsyncOpenAI(base_url=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key))
        )
        turns = it.prove()
    assert sorted(kind for kind, _ in kinds(turns)) == ["continuation"] * 8 + ["fresh_prompt"] * 4
    for turn in turns:
        if turn.edge.kind == "continuation":
            assert builtin.decode(turns[turn.edge.source].context.ids) in builtin.decode(turn.context.ids)
