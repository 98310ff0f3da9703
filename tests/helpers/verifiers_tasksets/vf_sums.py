"""Single-turn: add two numbers. An endless taskset."""

import itertools
import re

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsData(vf.TaskData):
    answer: int


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace) -> float:
        found = re.findall(r"\d+", trace.last_reply)
        return float(bool(found) and int(found[-1]) == self.data.answer)


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for at in itertools.count():
            a, b = at % 7, at // 3
            yield SumsTask(
                SumsData(prompt=f"What is {a} + {b}?", answer=a + b, name=f"sum-{at}"),
                self.config.task,
            )
