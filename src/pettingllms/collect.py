"""Playing a configuration without a learner: seats from policies, episodes to a folder."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.algos.credit import role_reward, turn_reward
from pettingllms.config import RunConfig, to_toml
from pettingllms.envs import Environment, Split, make_env_for
from pettingllms.inference.scripted import ByteRenderer, ScriptedSampler
from pettingllms.rollout import Seat, Worker
from pettingllms.types import Episode, Failed, Scored, write_episodes

CONFIG_FILE = "config.toml"
EPISODES_FILE = "episodes.jsonl"
ALGORITHM_FILE = "algorithm.json"


@dataclass(slots=True)
class Summary:
    """What a set of episodes came to. Failures are counted, never averaged in."""

    num_episodes: int = 0
    num_failed_episodes: int = 0
    num_turns: int = 0
    num_trained_turns: int = 0
    num_failed_turns: int = 0
    num_tokens: int = 0
    """All that were sampled, those of continuations too."""
    num_extra_tokens: int = 0
    """Those of continuations."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed turns and episodes without a turn, by owner and reason."""
    successes: Counter[str] = field(default_factory=Counter)
    """Episodes in which a role reached its aim. Those that failed count as not reached."""
    rewards: dict[str, list[float]] = field(default_factory=dict)
    """What each role was paid in each episode that came to its end."""

    @property
    def failure_share(self) -> float:
        """Failed turns among all turns, or failed episodes among all, whichever is more."""
        turns = self.num_failed_turns / max(1, self.num_turns)
        return max(turns, self.num_failed_episodes / max(1, self.num_episodes))


def scripted_seats(
    config: RunConfig, env: Environment[Any, Any], stand_in: str
) -> Mapping[str, Seat]:
    """Seats for every role without an engine: policies that need one are played by a stand-in."""
    trained = config.trained_policies()
    seats = {}
    for role, name in config.roles.items():
        policy = config.policies[name]
        player = policy.player if policy.kind == "scripted" else stand_in
        sampler = ScriptedSampler(env, player)
        seats[role] = Seat(name, sampler, ByteRenderer(), name in trained, sees_state=True)
    return seats


def collect(
    config: RunConfig,
    folder: Path,
    stand_in: str = "random",
    split: Split = "train",
    on_episode: Callable[[Episode], None] = lambda _: None,
) -> Summary:
    """Play the first tasks of a split, assign credit, and write all of it to a folder.

    Episodes are written in the order of tasks, whatever order they end in.
    """
    env = make_env_for(config.env)
    worker = Worker(env, scripted_seats(config, env, stand_in), config.rollout, config.reward)
    episodes: list[Episode] = []

    def deliver(episode: Episode) -> None:
        episodes.append(episode)
        on_episode(episode)

    tasks = list(itertools.islice(env.tasks(split), config.rollout.num_tasks))
    asyncio.run(worker.run(tasks, config.seed, deliver))
    place = {task.id: at for at, task in enumerate(tasks)}
    episodes.sort(key=lambda episode: (place[episode.task.id], len(episode.id), episode.id))
    algorithm = make_algorithm_for(config)
    algorithm.assign(episodes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(to_toml(config), encoding="utf-8")
    (folder / ALGORITHM_FILE).write_text(json.dumps(algorithm.state()), encoding="utf-8")
    write_episodes(folder / EPISODES_FILE, episodes)
    return summarize(episodes, config)


def summarize(episodes: Iterable[Episode], config: RunConfig) -> Summary:
    """Count and add up."""
    summary = Summary(rewards={role: [] for role in config.roles})
    for episode in episodes:
        _add_episode(summary, episode, config)
        for turn in episode.turns:
            summary.num_trained_turns += turn.advantage is not None
            reward = turn_reward(episode, turn, config.reward)
            if isinstance(reward, Failed):
                summary.num_failed_turns += 1
                summary.failures[f"{reward.owner}: {reward.reason}"] += 1
    return summary


def _add_episode(summary: Summary, episode: Episode, config: RunConfig) -> None:
    summary.num_episodes += 1
    summary.num_turns += len(episode.turns)
    summary.num_extra_tokens += episode.num_extra_tokens
    summary.num_tokens += episode.num_tokens
    if not config.rollout.keep_continuations:
        summary.num_tokens += episode.num_extra_tokens
    if episode.failure is not None:
        summary.num_failed_episodes += 1
        if not episode.turns:
            summary.failures[f"{episode.failure.owner}: {episode.failure.reason}"] += 1
    for role in config.roles:
        summary.successes[role] += episode.success.get(role, False)
        reward = role_reward(episode, role, config.reward)
        if isinstance(reward, Scored):
            summary.rewards[role].append(reward.value)
