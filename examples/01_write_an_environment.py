"""Rock, paper, scissors: write an environment in one short file.

pettingllms check-env examples/01_write_an_environment.py:RockPaperScissors
pettingllms play examples/01_write_an_environment.py:RockPaperScissors
"""

from dataclasses import dataclass

import pettingllms as pl

BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}


@dataclass(frozen=True)
class Match:
    rounds: tuple[tuple[str, str], ...] = ()


def throw_any(env, state, role, rng):
    return f"<answer>{rng.choice(list(BEATS))}</answer>"


class RockPaperScissors(pl.Environment):
    """Three rounds; both players throw at the same time."""

    id = "rock_paper_scissors-v1"
    roles = ("left", "right")
    limit_reward = -3.0  # an episode cut at a limit earns no more than three lost rounds
    players = {"random": throw_any}

    def tasks(self, split):
        return [pl.Task(f"{split}-{number}", seed=number) for number in range(100)]

    def reset(self, task, seed):
        return Match()

    def acting(self, state):
        return self.roles if len(state.rounds) < 3 else ()

    def observe(self, state, role):
        history = "; ".join(f"left {a}, right {b}" for a, b in state.rounds) or "none"
        return [
            pl.system(f"Rock, paper, scissors, three rounds. You are {role}."),
            pl.user(f"Rounds so far: {history}. Reply <answer>rock, paper or scissors</answer>."),
        ]

    def step(self, state, replies):
        throws = left, right = tuple(throw(replies[role]) for role in self.roles)
        won = (BEATS.get(left) == right) - (BEATS.get(right) == left)
        rewards = pl.Rewards(
            agent={"left": pl.Scored(won), "right": pl.Scored(-won)},
            process={  # any string is a legal reply; an invalid throw has a negative reward
                role: pl.Scored(0.0 if throw else -1.0)
                for role, throw in zip(self.roles, throws, strict=True)
            },
        )
        return pl.StepResult(Match((*state.rounds, throws)), rewards)

    def success(self, state, role):
        wins = sum(BEATS.get(left) == right for left, right in state.rounds)
        losses = sum(BEATS.get(right) == left for left, right in state.rounds)
        return wins > losses if role == "left" else losses > wins


def throw(reply):
    word = reply.strip().removeprefix("<answer>").removesuffix("</answer>").strip().lower()
    return word if word in BEATS else ""


if __name__ == "__main__":
    pl.check_env(RockPaperScissors())
    print("rock_paper_scissors-v1 keeps the environment contract")
