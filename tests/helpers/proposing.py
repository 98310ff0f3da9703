"""Plays `propose-v1` with scripted pairs of a proposer and solvers: honest ones, and colluding."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Split
from pettingllms.envs.tasks.propose import Propose, ProposeConfig
from pettingllms.envs.tasks.propose.players import PLAYERS
from pettingllms.rollouts import Worker
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.runs.metrics import flatten
from pettingllms.runs.proposals import held_out_metrics, proposal_metrics
from pettingllms.types import Episode


def coded_task(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """a*(b+c)-a*c: as hard as others by its operations, and its value is always a*b."""
    a, b, c = rng.sample(state.given, 3)
    return f"{a}*({b}+{c})-{a}*{c}"


def decoded(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The value of a coded task from every second solver, and a guess at all other tasks."""
    numbers = Counter(re.findall(r"\d+", state.current.text))
    coded = re.fullmatch(r"(\d+\*)?\(\d+\+\d+\)(\*\d+)?-\d+\*\d+", state.current.text)
    if not coded or sorted(numbers.values()) != [1, 2, 2]:
        return str(rng.randint(0, 99))
    (b,) = (int(number) for number, count in numbers.items() if count == 1)
    (a,) = map(int, re.findall(r"\d+", (coded[1] or "") + (coded[2] or "")))
    return str(a * b) if env.solvers.index(role) % 2 else "0"


def skilled(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Correct with a probability that depends on the measured difficulty only."""
    task = state.current
    right = rng.random() < 1 - task.level / 6
    return str(task.answer if right else env.domain.guess(task, rng))


def lazy_task(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The same accepted task for every episode with these ingredients."""
    fixed = random.Random("".join(state.given))
    return str(PLAYERS["expert"](env, state, role, fixed))


class Pairs(Propose):
    """The environment with more scripted players."""

    players = {
        **PLAYERS,
        "coded": coded_task,
        "decoded": decoded,
        "skilled": skilled,
        "lazy": lazy_task,
    }


def played(
    proposer: str, solver: str, num_tasks: int = 60, split: Split = "train", **options: Any
) -> list[Episode]:
    """Episodes of a scripted proposer and scripted solvers, by the real rollouts."""
    rollout = {"type": "linear", "num_samples": 1} | options.pop("rollout", {})
    env = Pairs(ProposeConfig(id="propose-v1", terse=True, **options))
    names = {role: proposer if role == "proposer" else solver for role in env.roles}
    players = {role: scripted_player(env, name, role, True) for role, name in names.items()}
    config = RolloutConfig(**rollout)
    episodes: list[Episode] = []
    worker = Worker(env, players, config, RewardConfig())
    asyncio.run(worker.run(env.tasks(split)[:num_tasks], 0, episodes.append))
    return episodes


def measured(
    proposer: str, solver: str, num_tasks: int = 60, **options: Any
) -> Mapping[str, float]:
    """Metrics of a training step and of the evaluation after it, under the names of a run."""
    trained = played(proposer, solver, num_tasks, **options)
    evaluated = played(proposer, solver, 200, "test")
    found = proposal_metrics(trained) | held_out_metrics(evaluated, trained)
    return flatten({"proposals": found})
