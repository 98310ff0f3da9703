"""Train the agents of an AG2 program: a planner, and a worker who is asked twice.

pettingllms train examples/agents_ag2.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged


async def solve(question: str, planner: dict, worker: dict) -> str:
    from ag2 import Agent
    from ag2.config import OpenAIConfig

    plans = Agent(
        "planner", "Say in one short sentence how.", config=OpenAIConfig("gpt-5-mini", **planner)
    )
    works = Agent("worker", "Answer with a number.", config=OpenAIConfig("gpt-5-mini", **worker))
    plan = await plans.ask(question)
    first = await works.ask(f"{question}\n{plan.body}")
    last = await first.ask("Are you sure? Answer with the number alone.")
    return last.body or ""


# --------------------------------------------------------------------- what training adds to it


class Ag2Sums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "ag2_sums-v1"
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
