"""Train a program that calls OpenAI's client: a planner, and a worker who follows the plan.

pettingllms train examples/agents_openai.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged


async def solve(question: str, planner: dict, worker: dict) -> str:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(**planner) as plans, AsyncOpenAI(**worker) as works:
        planned = await plans.chat.completions.create(
            model="gpt-5-mini",
            messages=[
                {"role": "system", "content": "Say in one short sentence how to work it out."},
                {"role": "user", "content": question},
            ],
        )
        chat = [
            {"role": "system", "content": "Answer with a number."},
            {"role": "user", "content": f"{question}\n{planned.choices[0].message.content}"},
        ]
        first = await works.chat.completions.create(model="gpt-5-mini", messages=chat)
        chat.append({"role": "assistant", "content": first.choices[0].message.content})
        chat.append({"role": "user", "content": "Are you sure? Answer with the number alone."})
        last = await works.chat.completions.create(model="gpt-5-mini", messages=chat)
    return last.choices[0].message.content


# --------------------------------------------------------------------- what training adds to it


class Sums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "openai_sums-v1"
    roles = ("planner", "worker")

    def tasks(self, split):
        first = 0 if split == "train" else 5
        pairs = [(a, b) for a in range(first, first + 5) for b in range(10)]
        return [pl.Task(f"{a}+{b}", {"a": a, "b": b}) for a, b in pairs]

    async def run(self, task, agents):
        question = f"What is {task.data['a']} + {task.data['b']}?"
        said = await solve(question, agents.openai("planner"), agents.openai("worker"))
        numbers = re.findall(r"\d+", said)
        right = numbers[-1:] == [str(task.data["a"] + task.data["b"])]
        return {"said": said, "right": right}

    def score(self, task, result):
        return pl.Rewards(team=pl.Scored(result["right"] - len(result["said"]) / 1000))

    def success(self, result, role):
        return result["right"]
