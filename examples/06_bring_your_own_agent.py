"""A program that calls OpenAI's client learns as it is: two agents, each with weights of its own.

`talk` is somebody's program. It knows nothing of training: it makes two clients and calls them.
While it learns, the clients are pointed at a gateway on this machine, which records the ids that
were sampled. Needs the engines and `pip install 'pettingllms[cpu,gateway]' openai`; two minutes
on two cores, without a network: the model is made on the spot.
"""

import tempfile
from pathlib import Path

import pettingllms as pl
from pettingllms.models import make_tiny
from pettingllms.train import Silent, train


async def talk(question: str, guesser: dict, checker: dict) -> tuple[str, str]:
    """The program, as it was before."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(**guesser) as guesses, AsyncOpenAI(**checker) as checks:
        asked = [{"role": "user", "content": question}]
        first = await guesses.chat.completions.create(model="gpt-5-mini", messages=asked)
        guess = first.choices[0].message.content
        shown = [{"role": "user", "content": f"{question} {guess} ok?"}]
        second = await checks.chat.completions.create(model="gpt-5-mini", messages=shown)
    return guess, second.choices[0].message.content


class Guessing(pl.Workflow):
    """What makes it learn: roles, tasks, how it is run, what its result is worth."""

    id = "guessing-v1"
    roles = ("guesser", "checker")

    def tasks(self, split):
        questions = ("digit", "letter")
        return [pl.Task(f"{split}-{n}", {"ask": questions[n % 2]}) for n in range(200)]

    async def run(self, task, agents):
        guess, word = await talk(
            task.data["ask"], agents.openai("guesser"), agents.openai("checker")
        )
        right = guess in set("0123456789" if task.data["ask"] == "digit" else "abcdefgh")
        return {"right": right, "agreed": word == ("yes" if right else "no")}

    def score(self, task, result):
        guesser, checker = pl.Scored(float(result["right"])), pl.Scored(float(result["agreed"]))
        return pl.Rewards(agent={"guesser": guesser, "checker": checker})

    def success(self, result, role):
        return result["right" if role == "guesser" else "agreed"]


class Lines(Silent):
    def step(self, step, metrics):
        shares = {role: row["success"] for role, row in metrics["roles"].items()}
        print(f"step {step:2}:", ", ".join(f"{role} {share:.0%}" for role, share in shares.items()))


def run(folder: Path, num_steps: int = 14) -> pl.RunFolder:
    words = ["digit letter yes no ok?", "0 1 2 3 4 5 6 7 8 9 a b c d e f g h"]
    model = make_tiny(
        folder / "model", texts=words, hidden_size=64, vocab_size=280, symbols=True, head_dim=16
    )
    policy = {"kind": "full", "model": str(model), "lr": 4e-3}
    config = pl.parse_config(
        {
            "env": {"id": f"{__file__}:Guessing"},
            "algo": {"type": "dr_mas"},  # each role is compared with itself in plays of one task
            "policies": {"guesser": policy, "checker": policy},
            "roles": {"guesser": "guesser", "checker": "checker"},
            "rollout": {"num_tasks": 4, "num_samples": 12, "max_reply_tokens": 1},
            "inference": {"engine": "torch", "max_num_seqs": 256, "max_model_tokens": 64},
            "loss": {"entropy": 0.1},
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
