"""Multi-turn: guess a number; the environment answers higher or lower."""

import re

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class GuessData(vf.TaskData):
    secret: int


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]): ...


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    max_guesses: int = 5


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        reward, used = 0.0, 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                used += 1
                found = re.findall(r"\d+", segment.last_reply)
                guess = int(found[-1]) if found else -1
                reward = max(reward, 1 - abs(guess - task.data.secret) / 10)
                if guess == task.data.secret or used == self.config.max_guesses:
                    break
                way = "higher" if guess < task.data.secret else "lower"
                segment = await interaction.turn(f"Guess {used}: {guess} is wrong, go {way}.")
        interaction.trace.record_reward("closeness", reward)
        interaction.trace.record_reward("speed", (5 - used) / 5, 0.5)


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    def load(self):
        for at in range(10):
            data = GuessData(
                name=f"guess-{at}",
                prompt=f"Game {at}: guess my number, 0 to 9.",
                secret=at * 7 % 10,
            )
            yield GuessTask(data, self.config.task)
