"""Train the agents of an OpenAI Agents SDK program: a planner who may hand over to a worker.

pettingllms train examples/agents_openai_agents.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged


async def solve(question: str, planner: dict, worker: dict) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    async with AsyncOpenAI(**planner) as plans, AsyncOpenAI(**worker) as works:
        second = Agent(
            name="worker",
            instructions="Answer with a number.",
            model=OpenAIChatCompletionsModel("gpt-5-mini", works),
        )
        first = Agent(
            name="planner",
            instructions="Answer if it is easy, else hand over to the worker.",
            model=OpenAIChatCompletionsModel("gpt-5-mini", plans),
            handoffs=[second],
        )
        ended = await Runner.run(first, question, max_turns=4)
    return str(ended.final_output)


# --------------------------------------------------------------------- what training adds to it


class HandOffSums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "openai_agents_sums-v1"
    roles = ("planner", "worker")

    def tasks(self, split):
        first = 0 if split == "train" else 5
        pairs = [(a, b) for a in range(first, first + 5) for b in range(10)]
        return [pl.Task(f"{a}+{b}", {"a": a, "b": b}) for a, b in pairs]

    async def run(self, task, agents):
        question = f"What is {task.data['a']} + {task.data['b']}?"
        said = await solve(question, agents.openai("planner"), agents.openai("worker"))
        right = re.findall(r"\d+", said)[-1:] == [str(task.data["a"] + task.data["b"])]
        return {"said": said, "right": right}

    def score(self, task, result):
        return pl.Rewards(team=pl.Scored(result["right"] - len(result["said"]) / 1000))

    def success(self, result, role):
        return result["right"]
