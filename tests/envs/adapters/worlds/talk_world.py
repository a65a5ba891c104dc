"""An endless taskset of verifiers 0.4.0 whose environment answers by itself."""

import verifiers.v1 as vf

__all__ = ["TalkEnv", "TalkTaskset"]


class TalkTask(vf.Task[vf.TaskData]):
    pass


class TalkConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class TalkEnv(vf.Env[TalkConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as talk:
            segment = await talk.turn()
            for n in range(2):
                if segment.terminated:
                    break
                if segment.last_reply == "burn":
                    raise RuntimeError("the room is on fire")
                segment = await talk.turn(f"Reply {n} to {segment.last_reply!r}.")
        talk.trace.record_reward("turns", float(talk.trace.num_turns))


class TalkTaskset(vf.Taskset[TalkTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        n = 0
        while True:
            yield TalkTask(vf.TaskData(prompt=f"Task {n}"), self.config.task)
            n += 1
