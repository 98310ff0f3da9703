"""A program that calls OpenAI's client learns as it is: two agents, each with weights of its own.

`talk` is somebody's program. It knows nothing of training: it has two clients and calls them.
While it learns, the clients are pointed at a gateway on this machine, which records the ids that
were sampled. Needs `bash scripts/install_cpu.sh gateway` and `pip install openai`; two minutes on
two cores, without a network: the model is made on the spot.
"""

import tempfile
from pathlib import Path

import pettingllms as pl
from pettingllms.models import make_tiny
from pettingllms.runs.callbacks import Callback
from pettingllms.training.train import train

KINDS = {"digit": tuple("01234"), "letter": tuple("abcde")}


async def talk(question: str, giver: dict, adder: dict) -> tuple[str, str]:
    """The program, as it was before: one agent gives an example, the other adds one like it."""
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
    """What makes it learn: roles, tasks, how it is run, what its result is worth."""

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


class Lines(Callback):
    def on_step_end(self, step, metrics):
        shares = {role: row["success"] for role, row in metrics["roles"].items()}
        print(f"step {step:2}:", ", ".join(f"{role} {share:.0%}" for role, share in shares.items()))


def run(folder: Path, num_steps: int = 14) -> pl.RunFolder:
    words = ["a digit", "a letter", "and another", " ".join(sum(KINDS.values(), ()))]
    model = make_tiny(
        folder / "model", texts=words, hidden_size=64, vocab_size=280, symbols=True, head_dim=16
    )
    policy = {"kind": "full", "model": str(model), "lr": 4e-3}
    config = pl.parse_config(
        {
            "env": {"id": f"{__file__}:Examples"},
            "algo": {"type": "dr_mas"},  # each role is compared with itself in plays of one task
            "policies": {"giver": policy, "adder": policy},
            "roles": {"giver": "giver", "adder": "adder"},
            "rollout": {"num_tasks": 4, "num_samples": 10, "max_reply_tokens": 1},
            "inference": {"engine": "torch", "max_num_seqs": 256, "max_model_len": 64},
            "loss": {"entropy_coef": 0.1},
            "cluster": {"device": "cpu"},
            "train": {"num_steps": num_steps, "save_every": num_steps},
        }
    )
    found = pl.RunFolder(folder / "run")
    found.create(config)
    train(config, found, Lines())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder))
        *_, last = sorted((found.path / "episodes").glob("*.jsonl"))
        for turn in next(pl.read_episodes(last)).turns:
            print(f"{turn.role}: {turn.messages[-1].content!r} -> {turn.text!r}")
