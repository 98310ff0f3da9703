"""Tasksets that fail: while scoring, by a reward that is no number, or by ending the process."""

import os
import time

import verifiers.v1 as vf

__all__ = ["BrokenTaskset"]


class BrokenTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def fail(self, trace) -> float:
        match self.data.name:
            case "raises":
                raise RuntimeError("the scorer broke")
            case "infinite":
                return float("inf")
            case "exits":
                os._exit(7)
            case "prints":
                print("not a line of the protocol")
            case "hangs":
                time.sleep(3600)  # noqa: ASYNC251 - blocks the loop on purpose
        return 1.0


class BrokenTaskset(vf.Taskset[BrokenTask, vf.TasksetConfig]):
    def load(self):
        for name in ("raises", "infinite", "prints", "exits", "hangs", "fine"):
            yield BrokenTask(vf.TaskData(name=name, prompt=f"Case {name}."), self.config.task)
