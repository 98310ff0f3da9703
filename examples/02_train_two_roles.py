"""Train two roles, each with weights of its own, from Python instead of the command line.

The sender sees red or blue and says one letter; the receiver hears the letter and names a colour.
The team is paid when the colour arrives. First both imitate a noisy pair, which keeps to a code
more often than not; then they learn from what their own replies come to. Needs the engines
(scripts/install_cpu.sh); a minute or two on two cores.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pettingllms as pl
from pettingllms.models import make_tiny
from pettingllms.runs.callbacks import Callback
from pettingllms.training.sft import sft
from pettingllms.training.train import train

CODE = {"red": "a", "blue": "b"}


@dataclass(frozen=True)
class State:
    colour: str
    letter: str = ""
    named: str = ""


def say_any(env, state, role, rng):
    return rng.choice("ab") if role == "sender" else rng.choice("rb")


def say_careless(env, state, role, rng):
    """The code, six times in ten; else anything."""
    if rng.random() > 0.6:
        return say_any(env, state, role, rng)
    if role == "sender":
        return CODE[state.colour]
    return "r" if state.letter == "a" else "b"


class Signals(pl.Environment):
    id = "two_signals-v1"
    roles = ("sender", "receiver")
    players = {"random": say_any, "noisy": say_careless}
    late_rewards = True  # what a letter is worth shows when the colour is named

    def tasks(self, split):
        return [pl.Task(f"{split}-{n}", {"colour": list(CODE)[n % 2]}) for n in range(400)]

    def reset(self, task, seed):
        return State(task.data["colour"])

    def acting(self, state):
        if not state.letter:
            return ("sender",)
        return () if state.named else ("receiver",)

    def observe(self, state, role):
        return [pl.user(f"see {state.colour}" if role == "sender" else f"hear {state.letter}")]

    def step(self, state, replies):
        ((role, reply),) = replies.items()
        said = reply.strip()[:1] or "?"
        known = said in ("ab" if role == "sender" else "rb")
        price = {role: pl.Scored(0.0 if known else -0.5)}  # any string is a reply, at a price
        if role == "sender":
            return pl.StepResult(replace(state, letter=said), pl.Rewards(process=price))
        right = pl.Scored(float(said == state.colour[0]))
        return pl.StepResult(replace(state, named=said), pl.Rewards(process=price, team=right))

    def success(self, state, role):
        return state.named == state.colour[0]


class Lines(Callback):
    """Is told everything, and prints one line a step."""

    def on_step_end(self, step, metrics):
        arrived = metrics["roles"]["receiver"]["success"]
        print(f"step {step:2}: {arrived:4.0%} of colours arrived")


def run(folder: Path, num_steps: int = 10) -> pl.RunFolder:
    # A model of 100,000 parameters with random weights, whose tokens are these letters and words.
    words = ["see red", "see blue", "hear a", "hear b", "hear ?", "r"]
    model = make_tiny(
        folder / "model", texts=words, hidden_size=64, vocab_size=280, symbols=True, head_dim=16
    )
    policy = {"kind": "full", "model": str(model), "lr": 1e-3}
    settings = {
        "env": {"id": f"{__file__}:Signals"},
        "algo": {"type": "at_grpo"},
        "policies": {"talks": policy, "listens": policy},  # both begin with the same weights
        "roles": {"sender": "talks", "receiver": "listens"},
        "rollout": {
            "num_tasks": 32,
            "num_samples": 8,  # siblings at every decision
            "continuation": "episode",  # each letter is compared by how its play ends
            "select": "sampled",
            "max_reply_tokens": 2,  # a letter, and the end of the reply
        },
        "inference": {"engine": "torch", "max_num_seqs": 512, "max_model_len": 32},
        "loss": {"entropy_coef": 0.02},
        "cluster": {"device": "cpu"},
        "sft": {"player": "noisy", "num_episodes": 400, "num_steps": 80, "lr": 3e-3},
        "train": {"num_steps": num_steps, "save_every": num_steps},
    }
    # First by imitation: who never says a letter is never paid for one.
    config = pl.parse_config(settings)
    taught = pl.RunFolder(folder / "taught")
    taught.create(config, supervised=True)
    sft(config, taught, Callback())
    # Then by reward.
    settings["train"]["start"] = str(taught.path)
    config = pl.parse_config(settings)
    found = pl.RunFolder(folder / "run")
    found.create(config)
    train(config, found, Lines())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder))
        *_, last = sorted((found.path / "episodes").glob("*.jsonl"))
        turns = [turn for episode in pl.read_episodes(last) for turn in episode.turns]
    for turn in turns[:1] + turns[-1:]:
        shown, said = turn.messages[-1].content, turn.text
        advantage = turn.credit.advantage
        print(f"{turn.policy} was shown {shown!r}, said {said!r}, advantage {advantage:+.2f}")
