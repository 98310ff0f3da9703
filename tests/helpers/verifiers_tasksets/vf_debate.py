"""Two roles with opposed rewards; the judgement compares both traces."""

import verifiers.v1 as vf

__all__ = ["DebateEnv", "DebateTaskset"]


class DebateTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]): ...


class DebateConfig(vf.EnvConfig):
    pro: vf.AgentConfig = vf.AgentConfig()
    con: vf.AgentConfig = vf.AgentConfig()
    rounds: int = 2


class DebateEnv(vf.Env[DebateConfig]):
    async def run(self, task, agents):
        claim = task.data.name
        tasks = {
            side: vf.Task(
                vf.TaskData(idx=task.data.idx, system_prompt=f"You argue {side}: {claim}")
            )
            for side in ("pro", "con")
        }
        async with (
            agents.pro.interaction(tasks["pro"]) as pro,
            agents.con.interaction(tasks["con"]) as con,
        ):
            said = "Open the debate."
            for _ in range(self.config.rounds):
                for side in (pro, con):
                    segment = await side.turn(said)
                    if segment.terminated:
                        return
                    said = f"They said: {segment.last_reply}"

    async def finalize(self, task, episode):
        words = {
            trace.agent.name: len({w for m in trace.assistant_messages for w in m.content.split()})
            for trace in episode.traces
        }
        for trace in episode.traces:
            other = words["con" if trace.agent.name == "pro" else "pro"]
            mine = words[trace.agent.name]
            trace.record_reward("more_words", (mine - other) / max(1, mine + other))


class DebateTaskset(vf.Taskset[DebateTask, vf.TasksetConfig]):
    def load(self):
        for at, claim in enumerate(
            ("cats beat dogs", "tea beats coffee", "rain beats sun", "7 is odd")
        ):
            yield DebateTask(vf.TaskData(name=claim, prompt=f"{at}: {claim}"), self.config.task)
