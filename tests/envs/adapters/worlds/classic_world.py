"""A classic environment of verifiers 0.3.1: `load_environment` with tools, with turns of its own, or broken."""

import verifiers as vf
from datasets import Dataset


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def load_environment(kind: str = "tools", rows: int = 3) -> vf.Environment:
    data = Dataset.from_list([{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(rows)])

    def right(completion, answer, **_):
        said = [message.content for message in completion if message.role == "assistant"]
        return float(answer in (said[-1] or ""))

    class Talk(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **_):
            if kind == "broken":
                raise RuntimeError("the room is on fire")
            turns = len(state["trajectory"])
            reply = [{"role": "user", "content": f"Reply {turns} to {messages[-1].content!r}."}]
            if turns >= 2:
                state["final_env_response"] = reply
            return reply

        async def get_prompt_messages(self, state):
            told = await super().get_prompt_messages(state)
            # Another past than what was said, as environments show that summarise.
            return told[-1:] if kind == "forgetful" and state["trajectory"] else told

    more = {"dataset": data, "eval_dataset": data, "rubric": vf.Rubric(funcs=[right])}
    if kind == "tools":
        return vf.ToolEnv(tools=[add], max_turns=4, system_prompt="Use add.", **more)
    return Talk(max_turns=5, **more)
