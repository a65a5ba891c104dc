"""smolagents through the proxy: its agent that calls tools, and the one that writes code."""

from typing import Any

import pytest
from scripted import aborted, kinds, says
from talk import EDIT, HANG, LAST, LOOK, PARALLEL

from agentgym_tok import ChatFormat, Message

smolagents = pytest.importorskip("smolagents", reason="make clients")
pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOOLS: Any = [
    {"type": "function", "function": LOOK},
    {
        "type": "function",
        "function": {
            "name": "final_answer",
            "parameters": {"type": "object", "properties": {"answer": {"type": "any"}}},
        },
    },
]


def look(thing: str, times: int) -> str:
    """Look at a thing.

    Args:
        thing: The thing.
        times: How often.
    """
    return f"{thing}, {times} times"


def calls(context: str, number: int) -> Message:
    if number == PARALLEL:
        return says("Both.", ("look", {"thing": "a door", "times": 2}), ("look", {"thing": "a wall", "times": 3}))
    if number == LAST:
        return says("", ("final_answer", {"answer": "a door"}))
    return says(f"Step {number}.", ("look", {"thing": f"shelf {number}", "times": number}))


def model_of(it: Any) -> Any:
    """Return its model; an answer that takes a second is asked for again."""
    return smolagents.OpenAIServerModel(
        "m", api_base=it.session.environ["OPENAI_BASE_URL"], api_key=it.session.key, client_kwargs={"timeout": 1.0}
    )


def test_tool_calling_agent(stage: Any, chat: ChatFormat) -> None:
    with stage(chat, calls, TOOLS, hangs=[HANG]) as it:
        model = model_of(it)
        with model.client:
            agent = smolagents.ToolCallingAgent(tools=[smolagents.tool(look)], model=model, verbosity_level=0)
            assert agent.run("What is there?") == "a door"
        turns = it.prove()
    unknown = [("unknown", None)]
    assert kinds(turns) == [("fresh_prompt", None), *unknown * HANG, ("retry", HANG), *unknown * 2]
    assert aborted(turns) == [turns[HANG]]
    assert [turn.facts["retry"] for turn in turns if "retry" in turn.facts] == ["retry_header"]
    reasons = {turn.edge.reason for turn in turns if turn.edge.kind == "unknown"}
    assert reasons == {"its answers are none of this session"}  # it quotes its calls as text


def test_tool_calling_agent_in_a_stream(stage: Any, chat: ChatFormat) -> None:
    with stage(chat, calls, TOOLS, hangs=[HANG]) as it:
        model = model_of(it)
        with model.client:
            agent = smolagents.ToolCallingAgent(
                tools=[smolagents.tool(look)], model=model, stream_outputs=True, verbosity_level=0
            )
            with pytest.raises(smolagents.AgentGenerationError, match="timed out"):
                agent.run("What is there?")
            assert agent.run("Go on.", reset=False) == "a door"
        turns = it.prove()
    # The next run's task stands behind all that was said: no repetition, and calls are quoted as before.
    assert kinds(turns) == [("fresh_prompt", None), *[("unknown", None)] * LAST]
    assert aborted(turns) == [turns[HANG]]


def code(context: str, number: int) -> Message:
    if number == LAST:
        return says('Thought: done.\n<code>\nfinal_answer("a door")\n</code>')
    return says(f'Thought: step {number}.\n<code>\nseen = look("shelf", {number})\nprint(seen)\n</code>')


def forget(step: Any, agent: Any) -> None:
    """Empty what was seen long ago, as its guide to memory shows."""
    if step.step_number == EDIT:
        for earlier in agent.memory.steps[1:4]:
            earlier.observations = "(long ago)"


@pytest.mark.parametrize("stream", [False, True])
def test_code_agent(request: pytest.FixtureRequest, stage: Any, chat: ChatFormat, stream: Any) -> None:
    with stage(chat, code) as it:
        model = model_of(it)
        with model.client:
            agent = smolagents.CodeAgent(
                tools=[smolagents.tool(look)],
                model=model,
                step_callbacks=[forget],
                stream_outputs=stream,
                verbosity_level=0,
            )
            assert agent.run("What is there?") == "a door"
        turns = it.prove()
    if request.node.callspec.params["chat"] in {"builtin", "glm4moe"}:  # their templates write turns as they were
        sources = [("rerender", place) for place in range(LAST)]
        sources[EDIT - 1] = ("unknown", 0)
    else:
        sources = [("unknown", None)] * LAST
    assert kinds(turns) == [("fresh_prompt", None), *sources]
