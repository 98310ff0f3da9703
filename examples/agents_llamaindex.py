"""Train the models of a LlamaIndex program: one answers, a critic objects, and it answers again.

pettingllms train examples/agents_llamaindex.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged


async def solve(question: str, query: dict, critic: dict) -> str:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai import OpenAI

    answers = OpenAI(model="gpt-4o-mini", api_base=query["base_url"], api_key=query["api_key"])
    judges = OpenAI(model="gpt-4o-mini", api_base=critic["base_url"], api_key=critic["api_key"])
    chat = [ChatMessage(role="system", content="Answer with a number."),
            ChatMessage(role="user", content=question)]  # fmt: skip
    first = await answers.achat(chat)
    messages = f"{question}\nSomebody says: {first.message.content}\nWhat is wrong with it?"
    said = await judges.achat([ChatMessage(role="user", content=messages)])
    chat += [first.message, ChatMessage(role="user", content=str(said.message.content))]
    return str((await answers.achat(chat)).message.content)


# --------------------------------------------------------------------- what training adds to it


class LlamaIndexSums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "llamaindex_sums-v1"
    roles = ("query", "critic")

    def tasks(self, split):
        first = 0 if split == "train" else 5
        pairs = [(a, b) for a in range(first, first + 5) for b in range(10)]
        return [pl.Task(f"{a}+{b}", {"a": a, "b": b}) for a, b in pairs]

    async def run(self, task, agents):
        question = f"What is {task.data['a']} + {task.data['b']}?"
        said = await solve(question, agents.openai("query"), agents.openai("critic"))
        right = re.findall(r"\d+", said)[-1:] == [str(task.data["a"] + task.data["b"])]
        return {"said": said, "right": right}

    def score(self, task, result):
        return pl.Rewards(team=pl.Scored(result["right"] - len(result["said"]) / 1000))

    def success(self, result, role):
        return result["right"]
