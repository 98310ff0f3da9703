"""Train LangChain models that call tools: an asker puts the question, a worker has a calculator.

pettingllms train examples/agents_langchain_tools.toml
"""

import re

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged

MAX_CALLS = 3


async def solve(question: str, asker: dict, worker: dict) -> str:
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    asks = ChatOpenAI(model="gpt-5-mini", **asker)
    works = ChatOpenAI(model="gpt-5-mini", **worker).bind_tools([add])
    put = await asks.ainvoke([("system", "Put it in fewer words."), ("user", question)])
    chat = [SystemMessage("Use the tool, then answer with a number."), HumanMessage(put.content)]
    for _ in range(MAX_CALLS):
        said = await works.ainvoke(chat)
        chat.append(said)
        if not said.tool_calls:
            break
        chat += [await add.ainvoke(call) for call in said.tool_calls]
    return str(said.content)


# --------------------------------------------------------------------- what training adds to it


class ToolSums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "langchain_tool_sums-v1"
    roles = ("asker", "worker")

    def tasks(self, split):
        first = 0 if split == "train" else 5
        pairs = [(a, b) for a in range(first, first + 5) for b in range(10)]
        return [pl.Task(f"{a}+{b}", {"a": a, "b": b}) for a, b in pairs]

    async def run(self, task, agents):
        question = f"What is {task.data['a']} + {task.data['b']}?"
        said = await solve(question, agents.openai("asker"), agents.openai("worker"))
        right = re.findall(r"\d+", said)[-1:] == [str(task.data["a"] + task.data["b"])]
        return {"said": said, "right": right}

    def score(self, task, result):
        return pl.Rewards(team=pl.Scored(result["right"] - len(result["said"]) / 1000))

    def success(self, result, role):
        return result["right"]
