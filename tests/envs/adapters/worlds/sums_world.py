"""A taskset of verifiers 0.4.0 with a tool server."""

import verifiers.v1 as vf

__all__ = ["SumTaskset"]


class SumData(vf.TaskData):
    answer: str


class CalcConfig(vf.ToolsetConfig):
    pass


class Calc(vf.Toolset[CalcConfig]):
    TOOL_PREFIX = "calc"

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @classmethod
    def toolsets(cls, config):
        return [Calc(CalcConfig())]


class SumTaskset(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for n in range(3):
            data = SumData(prompt=f"What is {n} + 1?", system_prompt="Use add.", answer=str(n + 1))
            yield SumTask(data, self.config.task)


if __name__ == "__main__":
    Calc.run()
