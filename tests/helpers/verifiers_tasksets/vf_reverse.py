"""Single-turn: reverse a text. Two weighted rewards and a metric."""

from difflib import SequenceMatcher

import verifiers.v1 as vf

__all__ = ["ReverseTaskset"]
WORDS = ("harbor", "lantern", "meadow", "quartz", "river", "signal", "timber", "violet")


class ReverseData(vf.TaskData):
    answer: str


class ReverseTask(vf.Task[ReverseData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.75)
    async def similarity(self, trace) -> float:
        return SequenceMatcher(None, self.data.answer, trace.last_reply).ratio()

    @vf.reward(weight=0.25)
    async def one_line(self, trace) -> float:
        return float("\n" not in trace.last_reply)

    @vf.metric
    async def length(self, trace) -> float:
        return float(len(trace.last_reply))


class ReverseConfig(vf.TasksetConfig):
    num_words: int = 1
    split: str = "train"


class ReverseTaskset(vf.Taskset[ReverseTask, ReverseConfig]):
    def load(self):
        n = self.config.num_words
        for at in range(12):
            offset = at if self.config.split == "train" else at + 100
            text = " ".join(WORDS[(at + k) % len(WORDS)] for k in range(n)) + f" {offset}"
            yield ReverseTask(
                ReverseData(
                    name=f"reverse-{offset}",
                    prompt=f"Reverse this text: {text}",
                    system_prompt="Reply with the reversed text only.",
                    answer=text[::-1],
                ),
                self.config.task,
            )
