"""Two roles in turn: one describes, one answers; both get the reward of the answer."""

import re

import verifiers.v1 as vf

__all__ = ["RelayEnv", "RelayTaskset"]


class RelayData(vf.TaskData):
    answer: int


class RelayTask(vf.Task[RelayData, vf.State, vf.TaskConfig]): ...


class RelayConfig(vf.EnvConfig):
    sender: vf.AgentConfig = vf.AgentConfig()
    receiver: vf.AgentConfig = vf.AgentConfig()


class RelayEnv(vf.Env[RelayConfig]):
    async def run(self, task, agents):
        sent = await agents.sender.run(task)
        note = vf.TaskData(idx=task.data.idx, prompt=f"A note: {sent.last_reply}. Add its numbers.")
        await agents.receiver.run(vf.Task(note))

    async def finalize(self, task, episode):
        answer = next(t for t in episode.traces if t.agent.name == "receiver").last_reply
        found = re.findall(r"\d+", answer)
        reward = 1 / (1 + abs((int(found[-1]) if found else 99) - task.data.answer))
        for trace in episode.traces:
            trace.record_reward("answer", reward)


class RelayTaskset(vf.Taskset[RelayTask, vf.TasksetConfig]):
    def load(self):
        for at in range(8):
            data = RelayData(prompt=f"Describe {at} and {at + 3}.", answer=2 * at + 3)
            yield RelayTask(data, self.config.task)
