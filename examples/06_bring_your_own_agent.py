"""Train the agents of an existing program that calls OpenAI's client, without changing it.

`talk` is such a program, with two clients. During training both clients call a gateway on this
machine, which records the sampled tokens. Needs `bash scripts/install_cpu.sh gateway` and
`pip install openai`; two minutes on two cores, without a network.
"""

import tempfile
from pathlib import Path

import pettingllms as pl

KINDS = {"digit": tuple("01234"), "letter": tuple("abcde")}


async def talk(question: str, giver: dict, adder: dict) -> tuple[str, str]:
    """The program: one agent gives an example, the other adds one of the same kind."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(**giver) as gives:
        adds = gives.with_options(**adder)
        asked = [{"role": "user", "content": f"a {question}"}]
        first = await gives.chat.completions.create(model="gpt-5-mini", messages=asked)
        example = first.choices[0].message.content
        shown = [{"role": "user", "content": f"{example} and another"}]
        second = await adds.chat.completions.create(model="gpt-5-mini", messages=shown)
    return example, second.choices[0].message.content


class Examples(pl.Workflow):
    """What training adds: roles, tasks, how to run the program, and rewards for its result."""

    id = "examples-v1"
    roles = ("giver", "adder")

    def tasks(self, split):
        return [pl.Task(f"{split}-{n}", {"kind": list(KINDS)[n % 2]}) for n in range(200)]

    async def run(self, task, agents):
        kind = task.data["kind"]
        given, added = await talk(kind, agents.openai("giver"), agents.openai("adder"))
        return {"giver": given in KINDS[kind], "adder": added in KINDS[kind]}

    def score(self, task, result):
        return pl.Rewards(agent={role: pl.Scored(float(right)) for role, right in result.items()})

    def success(self, result, role):
        return result[role]


def run(folder: Path, num_steps: int = 14) -> pl.Run:
    texts = ["a digit", "a letter", "and another", " ".join(sum(KINDS.values(), ()))]
    size = {"hidden_size": 64, "vocab_size": 280, "symbols": True, "head_dim": 16}
    model = pl.make_tiny(folder / "model", texts=texts, **size)
    policy = {"kind": "full", "model": model, "lr": 4e-3}
    return pl.train(
        env=Examples,
        algo="dr_mas",  # compares each role with itself in episodes of the same task
        policies={"giver": policy, "adder": policy},
        roles={"giver": "giver", "adder": "adder"},
        rollout={"num_tasks": 4, "num_samples": 10, "max_reply_tokens": 1},
        inference={"engine": "torch", "max_num_seqs": 256, "max_model_len": 64},
        loss={"entropy_coef": 0.1},
        cluster={"device": "cpu"},
        train={"num_steps": num_steps, "save_every": num_steps},
        out=folder / "run",
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        *_, last = run(Path(folder)).episodes()
        for turn in last.turns:
            print(f"{turn.role}: {turn.messages[-1].content!r} -> {turn.text!r}")
