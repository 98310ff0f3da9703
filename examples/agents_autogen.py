"""Train the agents of an AutoGen group chat: a planner and a worker who speak in turn.

pettingllms train examples/agents_autogen.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged

INFO = {
    "vision": False, "function_calling": True, "json_output": True,
    "structured_output": True, "family": "unknown",
}  # fmt: skip


async def solve(question: str, planner: dict, worker: dict) -> str:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    plans = OpenAIChatCompletionClient(model="gpt-5-mini", model_info=INFO, **planner)
    works = OpenAIChatCompletionClient(model="gpt-5-mini", model_info=INFO, **worker)
    team = RoundRobinGroupChat(
        [
            AssistantAgent("planner", plans, system_message="Say in one short sentence how."),
            AssistantAgent("worker", works, system_message="Answer with a number."),
        ],
        max_turns=4,
    )
    ended = await team.run(task=question)
    await plans.close()
    await works.close()
    return str(ended.messages[-1].content)


# --------------------------------------------------------------------- what training adds to it


class AutoGenSums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "autogen_sums-v1"
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
