"""Episodes written by hand, for credit that can be worked out by hand, and plays by a script."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from pettingllms.types import (
    Credit,
    Episode,
    Failed,
    Reward,
    Rewards,
    Scored,
    Step,
    Task,
    TreeLinks,
    Turn,
    user,
)

IDS = np.array([1, 2], dtype=np.int32)
LOST = Failed("lost", "sampler")


LINKS = tuple(field.name for field in fields(TreeLinks))
CREDIT = tuple(field.name for field in fields(Credit))


def turn(role: str, policy: str | None = None, **given: Any) -> Turn:
    """A turn of two tokens; fields of its credit and of its links are given flat."""
    credit = {name: given.pop(name) for name in CREDIT if name in given}
    links = {name: given.pop(name) for name in LINKS if name in given}
    return Turn(
        role=role,
        policy=policy or f"policy_{role}",
        messages=(user("?"),),
        prompt_ids=IDS,
        response_ids=IDS,
        logprobs=None,
        text="!",
        policy_version=0,
        credit=Credit(**credit),
        links=TreeLinks(**links),
        **given,
    )


def overwrite(turn: Turn, **values: Any) -> None:
    """Set fields of a turn that are frozen outside tests."""
    for name, value in values.items():
        object.__setattr__(turn, name, value)


def rewards(
    process: Mapping[str, float] | None = None,
    agent: Mapping[str, float] | None = None,
    team: float | Failed | None = None,
) -> Rewards:
    return Rewards(
        process={role: Scored(value) for role, value in (process or {}).items()},
        agent={role: Scored(value) for role, value in (agent or {}).items()},
        team=_reward(team),
    )


def _reward(value: float | Failed | None) -> Reward | None:
    return value if value is None or isinstance(value, Failed) else Scored(value)


def linear(
    task: str,
    number: int,
    *steps: tuple[str, Rewards],
    failure: Failed | None = None,
    seed: int = 0,
) -> Episode:
    """An episode in which each step is one role's reply and its rewards."""
    episode = Episode(f"{task}/{number}", "hand-v1", Task(task), seed, failure=failure)
    last = len(steps) - 1
    for at, (role, given) in enumerate(steps):
        episode.turns.append(turn(role, step=at, last=last, failure=failure))
        episode.steps.append(Step(at - 1 if at else None, (at,), given))
    episode.last = last if steps else None
    return episode


def siblings(task: str, role: str, values: Sequence[float | Failed], number: int = 0) -> Episode:
    """One decision of one role: a fork for each value, its process reward."""
    episode = Episode(f"{task}/{number}", "hand-v1", Task(task), 0)
    for branch, value in enumerate(values):
        failed = value if isinstance(value, Failed) else None
        at = None if failed else len(episode.steps)
        episode.turns.append(turn(role, branch=branch, step=at, last=at, failure=failed))
        if not isinstance(value, Failed):
            episode.steps.append(Step(None, (branch,), rewards(process={role: value})))
            episode.last = at
    return episode


def removals(
    task: str,
    number: int,
    roles: Sequence[str],
    value: float,
    without: Mapping[str, float | Failed],
    fine: float = 0.0,
) -> Episode:
    """An episode in which each role speaks once and the team gets a reward at the end.

    `without` has the team reward of the episode replayed without a role; the environment fines
    that role for its silence.
    """
    episode = linear(task, number, *((role, rewards()) for role in roles))
    episode.steps[-1].rewards = rewards(team=value)
    for role, counterfactual in without.items():
        if isinstance(counterfactual, Failed):
            episode.without[role] = counterfactual
            continue
        parent = None
        for at, speaker in enumerate(roles):
            said = at if speaker != role else len(episode.turns)
            step = len(episode.steps)
            fined = {role: fine} if speaker == role and fine else {}
            episode.steps.append(Step(parent, (said,), rewards(process=fined)))
            if speaker == role:
                silent = turn(role, step=step)
                overwrite(silent, policy_version=None)
                episode.turns.append(silent)
            parent = step
        last = episode.steps[-1]
        last.rewards = Rewards(process=last.rewards.process, team=Scored(counterfactual))
        episode.turns[-1].links.last = parent
        episode.without[role] = len(episode.steps) - 1
    return episode


def advantages(episode: Episode) -> list[float | None]:
    return [turn.credit.advantage for turn in episode.turns]


def play(env: Any, player: str, task: int) -> tuple[Any, list[tuple[str, Rewards]]]:
    """One player in every role of a sequential environment: the end, and the rewards per turn."""
    state: Any = env.reset(env.tasks("train")[task], 0)
    given: list[tuple[str, Rewards]] = []
    while roles := env.acting(state):
        role = roles[0]
        result = env.step(state, {role: env.player(player)(env, state, role, random.Random(task))})
        state = result.state
        given.append((role, result.rewards))
    return state, given
