"""Playing a configuration without a learner: seats from policies, episodes to a folder."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RolloutConfig, RunConfig, to_toml
from pettingllms.config.judge import RULE
from pettingllms.config.policies import ScriptedPolicy
from pettingllms.envs import Environment, Split, make_env_for
from pettingllms.envs.check_start import check_start
from pettingllms.judges import (
    FIRST_PLAY,
    Hall,
    Voice,
    judge_all,
    make_judges,
    reference_lineups,
)
from pettingllms.judges.rule import RuleJudge
from pettingllms.league import SCRIPT, Lineup, make_company, rotations
from pettingllms.rollout import Seat, Worker, in_order
from pettingllms.rollout.scripted import scripted_seat
from pettingllms.runs.folder import CONFIG_FILE
from pettingllms.runs.summary import Summary, summarize
from pettingllms.runs.trust import remember_code
from pettingllms.types import Episode, Task, write_episodes

__all__ = ["collect"]

EPISODES_FILE = "episodes.jsonl"
ALGORITHM_FILE = "algorithm.json"


def scripted_seats(
    config: RunConfig, env: Environment[Any, Any], stand_in: str
) -> Mapping[str, Seat]:
    """Seats for every role without an engine: policies that need one are played by a stand-in."""
    return {role: _seat(config, env, name, stand_in) for role, name in config.roles.items()}


def _seat(config: RunConfig, env: Environment[Any, Any], name: str, stand_in: str) -> Seat:
    policy = config.policies.get(name)
    if name.startswith(SCRIPT):
        player = name.removeprefix(SCRIPT)
    else:
        player = policy.player if isinstance(policy, ScriptedPolicy) else stand_in
    trained = name in config.trained_policies()
    return scripted_seat(env, player, name, trained)


def _lineups(config: RunConfig, tasks: Sequence[Task]) -> Mapping[str, Lineup]:
    """Who plays tasks where that is not whom [roles] names, as in the first step of a run."""
    if config.company.is_on:
        return make_company(config, {}).lineups(1, tasks)
    return rotations(config.roles, tasks, 0) if config.rollout.rotate else {}


def scripted_worker(
    config: RunConfig,
    env: Environment[Any, Any],
    lineups: Mapping[str, Lineup],
    rollout: RolloutConfig,
    stand_in: str,
) -> Worker:
    """A worker without engines; `lineups` say who plays a task where that is not whom [roles]
    names."""
    others = {
        task: {role: _seat(config, env, name, stand_in) for role, name in lineup.items()}
        for task, lineup in lineups.items()
    }
    seats = scripted_seats(config, env, stand_in)
    return Worker(env, seats, rollout, config.reward, others)


async def _judge(
    config: RunConfig,
    env: Environment[Any, Any],
    tasks: Sequence[Task],
    lineups: Mapping[str, Lineup],
    episodes: Sequence[Episode],
    stand_in: str,
) -> None:
    """Judge without an engine: the environment's rule stands in for judges that need one."""
    section, rule = config.judge, RuleJudge.Config(kind=RULE)
    judges = {n: rule if section.spoken(n) else judge for n, judge in section.judges.items()}
    section = section.model_copy(update={"judges": judges})
    references: list[Episode] = []
    if section.against == "reference":
        held_to = reference_lineups(config, tasks, lineups)
        rollout = config.rollout.linear(section.num_references)
        worker = scripted_worker(config, env, held_to, rollout, stand_in)
        await worker.run(tasks, config.seed, references.append, FIRST_PLAY)
    made = make_judges(section, Hall(env.rule, _no_voice, seed=config.seed))
    share = config.rollout.max_failure_share
    await judge_all(episodes, references, section, made, share)
    for judge in made.values():
        await judge.close()


def _no_voice(policy: str) -> Voice:
    raise AssertionError(policy)  # a rule stands in for whoever would speak


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
    if config.rollout.type != "linear":
        check_start(env, forks=True, split=split)
    tasks = list(itertools.islice(env.tasks(split), config.rollout.num_tasks))
    lineups = _lineups(config, tasks)
    worker = scripted_worker(config, env, lineups, config.rollout, stand_in)
    episodes: list[Episode] = []

    def deliver(episode: Episode) -> None:
        episodes.append(episode)
        on_episode(episode)

    asyncio.run(worker.run(tasks, config.seed, deliver))
    episodes = in_order(episodes, tasks)
    if config.judge.is_on:
        asyncio.run(_judge(config, env, tasks, lineups, episodes, stand_in))
    algorithm = make_algorithm_for(config)
    algorithm.assign(episodes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(to_toml(config), encoding="utf-8")
    remember_code(config)
    (folder / ALGORITHM_FILE).write_text(json.dumps(algorithm.state()), encoding="utf-8")
    write_episodes(folder / EPISODES_FILE, episodes)
    return summarize(episodes, config)
