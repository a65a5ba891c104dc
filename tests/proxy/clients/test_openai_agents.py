"""openai-agents through the proxy, over both of its protocols: with a subagent, a filter and a cancelled run."""

import asyncio
from typing import Any

import pytest
from scripted import Scripted, aborted, kinds, says
from talk import EDIT, HANG, LAST, LOOK, PARALLEL

from agentgym_tok import ChatFormat, Message

pytest.importorskip("agents", reason="make clients")
pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ASK: Any = {"name": "ask", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}}}
TOOLS: Any = [{"type": "function", "function": LOOK}, {"type": "function", "function": ASK}]
SUBAGENT = 2  # the turn that calls the other agent, whose own turn is the next one


def say(context: str, number: int) -> Message:
    if "You help." in context:
        return says("It is behind the door, I am sure.")
    if number == SUBAGENT:
        return says("", ("ask", {"input": "Where is the key to the cellar?"}))
    if number == PARALLEL:
        return says("", ("look", {"thing": "a door", "times": 2}), ("look", {"thing": "a wall", "times": 3}))
    if number == LAST:
        return says("There is a door.")
    return says("Let me look.", ("look", {"thing": f"shelf {number}", "times": number}))


def agent_of(agents: Any, model: Any) -> Any:
    @agents.function_tool
    def look(thing: str, times: int) -> str:
        """Look at a thing."""
        return f"{thing}, {times} times"

    helper = agents.Agent(name="helper", instructions="You help.", model=model)
    tools = [look, helper.as_tool("ask", "Ask somebody.")]
    return agents.Agent(name="looker", instructions="You look at things.", tools=tools, model=model)


async def leave(streamed: Any, policy: Scripted) -> None:
    """Cancel a run in the middle of a turn."""
    assert await asyncio.to_thread(policy.hanging.wait, 10)
    streamed.cancel()


@pytest.mark.parametrize("kind", ["Responses", "ChatCompletions"])
def test_agents(stage: Any, chat: ChatFormat, kind: Any) -> None:
    import agents
    import openai

    async def run(it: Any) -> Any:
        cuts: list[int] = []

        def forget(data: Any) -> Any:
            """Leave out what was said before the last call but one, from some turn on."""
            items = data.model_data.input
            if len(it.policy.drawn) == EDIT:
                cuts.append(len(items) - 3)
            for cut in cuts:
                data.model_data.input = items[:1] + items[cut:]
            return data.model_data

        async with openai.AsyncOpenAI(base_url=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key) as client:
            model = getattr(agents, f"OpenAI{kind}Model")("m", client)
            agent = agent_of(agents, model)
            config = agents.RunConfig(call_model_input_filter=forget, tracing_disabled=True)
            streamed = agents.Runner.run_streamed(agent, "What is there?", run_config=config, max_turns=20)
            leaving = asyncio.create_task(leave(streamed, it.policy))
            async for _ in streamed.stream_events():
                pass
            await leaving
            it.settle()
            return await agents.Runner.run(agent, streamed.to_input_list(), run_config=config, max_turns=20)

    with stage(chat, say, TOOLS, hangs=[HANG]) as it:
        assert asyncio.run(run(it)).final_output == "There is a door."
        turns = it.prove()
    expected: list[tuple[str, int | None]] = [("continuation", place - 1) for place in range(LAST + 1)]
    expected[0], expected[SUBAGENT + 1] = ("fresh_prompt", None), ("subagent_call", SUBAGENT)
    expected[SUBAGENT + 2] = ("continuation", SUBAGENT)
    expected[EDIT], expected[HANG + 1] = ("compaction", EDIT - 1), ("continuation", HANG - 1)
    assert kinds(turns) == expected
    assert aborted(turns) == [turns[HANG]]
    assert turns[SUBAGENT + 2].edge.reason == f"the answer of turn {SUBAGENT + 1} returns"
