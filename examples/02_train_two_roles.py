"""Train two roles, one model per role: a warm start with SFT, then reinforcement learning.

The sender sees red or blue and sends one letter. The receiver sees the letter and names a color.
Both share a team reward if the color is right. Needs the engines (scripts/install_cpu.sh); a minute
or two on two cores.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pettingllms as pl

CODE = {"red": "a", "blue": "b"}


@dataclass(frozen=True)
class State:
    color: str
    letter: str = ""
    named: str = ""


def reply_random(env, state, role, rng):
    return rng.choice("ab") if role == "sender" else rng.choice("rb")


def reply_noisy(env, state, role, rng):
    """Follows the code with probability 0.6."""
    if rng.random() > 0.6:
        return reply_random(env, state, role, rng)
    if role == "sender":
        return CODE[state.color]
    return "r" if state.letter == "a" else "b"


class Signals(pl.Environment):
    id = "two_signals-v1"
    roles = ("sender", "receiver")
    players = {"random": reply_random, "noisy": reply_noisy}
    late_rewards = True  # the sender's reward comes with the receiver's reply

    def tasks(self, split):
        return [pl.Task(f"{split}-{n}", {"color": list(CODE)[n % 2]}) for n in range(400)]

    def reset(self, task, seed):
        return State(task.data["color"])

    def acting(self, state):
        if not state.letter:
            return ("sender",)
        return () if state.named else ("receiver",)

    def observe(self, state, role):
        return [pl.user(f"see {state.color}" if role == "sender" else f"hear {state.letter}")]

    def step(self, state, replies):
        ((role, reply),) = replies.items()
        letter = reply.strip()[:1] or "?"
        valid = letter in ("ab" if role == "sender" else "rb")
        process = {role: pl.Scored(0.0 if valid else -0.5)}
        if role == "sender":
            return pl.StepResult(replace(state, letter=letter), pl.Rewards(process))
        team = pl.Scored(float(letter == state.color[0]))
        return pl.StepResult(replace(state, named=letter), pl.Rewards(process, team=team))

    def success(self, state, role):
        return state.named == state.color[0]


def run(folder: Path, num_steps: int = 10) -> pl.Run:
    # A model of 100,000 parameters with random weights, whose tokens are these letters and words.
    texts = ["see red", "see blue", "hear a", "hear b", "hear ?", "r"]
    size = {"hidden_size": 64, "vocab_size": 280, "symbols": True, "head_dim": 16}
    policy = {"kind": "full", "model": pl.make_tiny(folder / "model", texts=texts, **size)}
    config = {
        "env": Signals,
        "algo": "at_grpo",
        "policies": {"talks": {**policy, "lr": 1e-3}, "listens": {**policy, "lr": 1e-3}},
        "roles": {"sender": "talks", "receiver": "listens"},
        "rollout": {
            "num_tasks": 32,
            "num_samples": 8,  # sibling replies per decision
            "continuation": "episode",  # siblings are compared by the return of whole episodes
            "select": "sampled",
            "max_reply_tokens": 2,  # a letter and the end of the reply
        },
        "inference": {"engine": "torch", "max_num_seqs": 512, "max_model_len": 32},
        "loss": {"entropy_coef": 0.02},
        "cluster": {"device": "cpu"},
    }
    # A policy that never sends a letter gets no gradient, so both imitate a noisy player first.
    demos = {"player": "noisy", "num_episodes": 400, "num_steps": 80, "lr": 3e-3}
    warm = pl.sft(config, sft=demos, out=folder / "sft")
    steps = {"num_steps": num_steps, "save_every": num_steps, "init_from": warm.path}
    return pl.train(config, train=steps, out=folder / "run")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        *_, last = run(Path(folder)).episodes()
    for turn in last.turns[:1] + last.turns[-1:]:
        print(f"{turn.policy}: {turn.messages[-1].content!r} -> {turn.text!r}", end=", ")
        print(f"advantage {turn.credit.advantage:+.2f}")
