"""An environment in the shape of verifiers 0.3.1: it says back what it hears, and pays a point a turn."""

import sys
import time

from verifiers.types import UserMessage


class Rows(list):
    def to_list(self):
        return list(self)


class Parrot:
    tool_defs = None
    pass_threshold = 0.5

    def __init__(self, turns, fails, picture, groups, rows):
        self._turns, self._fails, self._picture = turns, fails, picture
        self._rows, self.requires_group_rollouts = rows, groups

    def get_dataset(self):
        return Rows({"prompt": f"Task {n}", "example_id": n} for n in range(self._rows))

    get_eval_dataset = get_dataset

    async def run_rollout(self, input, client, model, sampling_args):
        content = [{"type": "image_url"}] if self._picture else input["prompt"]
        messages = [UserMessage(role="user", content=content)]
        for _ in range(self._turns):
            answer = await client.get_response(
                prompt=messages, model=model, sampling_args=sampling_args, tools=None, state={}
            )
            said = {"role": "assistant", "content": answer.message.content}
            if getattr(answer.message, "reasoning_content", None) is not None:
                said["reasoning_content"] = answer.message.reasoning_content
            if input["example_id"] == self._fails:
                return {"error": {"error": "ToolError", "error_chain_repr": "the parrot died"}}
            messages += [said, {"role": "user", "content": answer.message.content}]
        return {
            "reward": float(self._turns),
            "metrics": {"turns": self._turns},
            "stop_condition": "max_turns_reached",
            "completion": messages[1:],
        }


def load_environment(turns=2, fails=None, picture=False, groups=False, rows=8, loads="well"):
    print("this line must not be taken for an answer")
    if loads == "badly":
        raise ValueError("no parrot")
    if loads == "never":
        time.sleep(60)
    if loads == "dying":
        print("last words", file=sys.stderr, flush=True)
        sys.stdout.flush()
        import os

        os._exit(3)
    return Parrot(turns, fails, picture, groups, rows)
