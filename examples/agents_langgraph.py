"""Train the agents of a LangGraph graph: a planner, and a worker with a separate adapter.

pettingllms train examples/agents_langgraph.toml
"""

import re
from typing import TypedDict

import pettingllms as pl

# ---------------------------------------------------------------------- the program, unchanged


class State(TypedDict, total=False):
    question: str
    plan: str
    answer: str


def make_graph(planner, worker):
    from langgraph.graph import END, START, StateGraph

    async def plan(state: State) -> State:
        messages = [("system", "Say in one short sentence how to work it out."),
                ("user", state["question"])]  # fmt: skip
        return {"plan": (await planner.ainvoke(messages)).content}

    async def work(state: State) -> State:
        messages = [("system", "Answer with a number."),
                ("user", f"{state['question']}\n{state['plan']}")]  # fmt: skip
        return {"answer": (await worker.ainvoke(messages)).content}

    graph = StateGraph(State)
    graph.add_node("planning", plan)
    graph.add_node("working", work)
    graph.add_edge(START, "planning")
    graph.add_edge("planning", "working")
    graph.add_edge("working", END)
    return graph.compile()


# --------------------------------------------------------------------- what training adds to it


class LangGraphSums(pl.Workflow):
    """Sums of two digits. The team reward is 1 for the right sum, plus a little for brevity."""

    id = "langgraph_sums-v1"
    roles = ("planner", "worker")

    def tasks(self, split):
        first = 0 if split == "train" else 5
        pairs = [(a, b) for a in range(first, first + 5) for b in range(10)]
        return [pl.Task(f"{a}+{b}", {"a": a, "b": b}) for a, b in pairs]

    async def run(self, task, agents):
        from langchain_openai import ChatOpenAI

        planner = ChatOpenAI(model="gpt-5-mini", **agents.openai("planner"))
        worker = ChatOpenAI(model="gpt-5-mini", **agents.openai("worker"))
        question = f"What is {task.data['a']} + {task.data['b']}?"
        ended = await make_graph(planner, worker).ainvoke({"question": question})
        right = re.findall(r"\d+", ended["answer"])[-1:] == [str(task.data["a"] + task.data["b"])]
        return {"said": ended["answer"], "right": right}

    def score(self, task, result):
        return pl.Rewards(team=pl.Scored(result["right"] - len(result["said"]) / 1000))

    def success(self, result, role):
        return result["right"]
