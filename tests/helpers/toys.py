"""Small environments and samplers that tests steer by hand."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pettingllms.config import EnvConfig, RewardConfig, RolloutConfig
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer, text_ids
from pettingllms.types import (
    Episode,
    Failed,
    Message,
    Rewards,
    Sample,
    SampleRequest,
    Scored,
    Task,
    user,
)


def play_digit(env: Any, state: Any, role: str, rng: random.Random) -> str:
    return str(rng.randrange(10))


@dataclass(frozen=True)
class Talk:
    """What has been said so far, with the role that said it."""

    said: tuple[tuple[str, str], ...] = ()
    start: int = 0


class Relay(Environment[Talk, EnvConfig]):
    """`num_rounds` times a says a digit, then b, who sees it. Each digit is an immediate reward."""

    id = "relay-v1"
    players = {"random": play_digit}
    num_rounds = 2

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{at}", {"bonus": at}, seed=at) for at in range(20)]

    def reset(self, task: Task, seed: int) -> Talk:
        return Talk(start=task.seed)

    def acting(self, state: Talk) -> tuple[str, ...]:
        return () if len(state.said) == 2 * self.num_rounds else (self.roles[len(state.said) % 2],)

    def observe(self, state: Talk, role: str) -> Sequence[Message]:
        heard = " ".join(f"{who}:{what}" for who, what in state.said)
        return [user(f"task {state.start}. said: [{heard}]. you are {role}")]

    def step(self, state: Talk, replies: Mapping[str, str]) -> StepResult[Talk]:
        ((role, reply),) = replies.items()
        after = replace(state, said=(*state.said, (role, reply)))
        digit = float(reply) if reply.isdigit() and reply.isascii() and len(reply) < 9 else -1.0
        over = not self.acting(after)
        team = Scored(sum(float(w) for _, w in after.said if w in "0123456789" and w))
        return StepResult(
            after, Rewards(process={role: Scored(digit)}, team=team if over else None)
        )

    def success(self, state: Talk, role: str) -> bool:
        return True


class Duel(Relay):
    """a and b speak at the same time, once; the reward is the own digit minus the other's."""

    id = "duel-v1"

    def acting(self, state: Talk) -> tuple[str, ...]:
        return () if state.said else ("a", "b")

    def step(self, state: Talk, replies: Mapping[str, str]) -> StepResult[Talk]:
        digits = {role: float(r) if r in set("0123456789") else -1.0 for role, r in replies.items()}
        agent = {"a": Scored(digits["a"] - digits["b"]), "b": Scored(digits["b"] - digits["a"])}
        return StepResult(replace(state, said=tuple(replies.items())), Rewards(agent=agent))


Answer = Callable[[SampleRequest, int], "str | Failed"]


class AnsweringSampler:
    """Replies with what a function says, with a log-prob for every id."""

    def __init__(self, answer: Answer, version: int = 7) -> None:
        self.answer = answer
        self.version = version
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> list[Sample | Failed]:
        self.requests.append(request)
        await asyncio.sleep(0)
        results: list[Sample | Failed] = []
        for number in range(request.num_samples):
            text = self.answer(request, number)
            if isinstance(text, Failed):
                results.append(text)
            else:
                whole = text_ids(text)
                ids = whole[: request.max_tokens]
                logprobs = np.linspace(-1, -0.1, len(ids)).astype(np.float32)
                finish = "stop" if len(ids) == len(whole) else "length"
                results.append(Sample(ids, logprobs, self.version, finish))
        return results


def by_chance(request: SampleRequest, number: int) -> str:
    return str(random.Random(request.seed + number).randrange(10))


def roll(
    env: Environment[Any, Any],
    answer: Answer | Mapping[str, Any] = by_chance,
    num_tasks: int = 3,
    seed: int = 0,
    reward: RewardConfig | None = None,
    **options: Any,
) -> list[Episode]:
    """Play tasks with answers by function, or with a sampler for each role."""
    samplers = answer if isinstance(answer, Mapping) else {}
    shared = AnsweringSampler(answer) if callable(answer) else None
    players = {
        role: Player(f"policy_{role}", samplers.get(role, shared), ByteRenderer())
        for role in env.roles
    }
    return play_with(env, players, num_tasks, seed, reward, **options)


def play_with(
    env: Environment[Any, Any],
    players: Mapping[str, Player],
    num_tasks: int = 3,
    seed: int = 0,
    reward: RewardConfig | None = None,
    **options: Any,
) -> list[Episode]:
    config = RolloutConfig(**{"type": "linear", "num_samples": 3, "replay": "resampled", **options})
    episodes: list[Episode] = []
    worker = Worker(env, players, config, reward or RewardConfig())
    asyncio.run(worker.run(env.tasks("train")[:num_tasks], seed, episodes.append))
    return sorted(episodes, key=lambda episode: episode.id)
