"""Rollouts without engines or learners: scripted players sample episodes into a folder."""

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
    FIRST_REFERENCE,
    JudgeContext,
    JudgeModel,
    judge_all,
    make_judges,
    reference_assignments,
)
from pettingllms.judges.base import RuleJudge
from pettingllms.league import SCRIPT, Assignment, make_co_players, rotations
from pettingllms.rollouts import Player, Worker, in_order
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.runs.folder import CONFIG_FILE
from pettingllms.runs.summary import Summary, summarize
from pettingllms.runs.trust import remember_code
from pettingllms.types import Episode, Task, write_episodes

__all__ = ["collect"]

EPISODES_FILE = "episodes.jsonl"
ALGORITHM_FILE = "algorithm.json"


def scripted_players(
    config: RunConfig, env: Environment[Any, Any], stand_in: str
) -> Mapping[str, Player]:
    """A player per role without engines: a scripted player replaces policies that need one."""
    return {role: _player(config, env, name, stand_in) for role, name in config.roles.items()}


def _player(config: RunConfig, env: Environment[Any, Any], name: str, stand_in: str) -> Player:
    policy = config.policies.get(name)
    if name.startswith(SCRIPT):
        player = name.removeprefix(SCRIPT)
    else:
        player = policy.player if isinstance(policy, ScriptedPolicy) else stand_in
    trained = name in config.trained_policies()
    return scripted_player(env, player, name, trained)


def _assignments(config: RunConfig, tasks: Sequence[Task]) -> Mapping[str, Assignment]:
    """Players of tasks where they differ from [roles], as in the first step of a run."""
    if config.co_players is not None:
        section, policies = config.co_players, config.policies
        co_players = make_co_players(section, config.roles, policies, config.seed)
        return co_players.assignments(1, tasks)
    return rotations(config.roles, tasks, 0) if config.rollout.rotate_roles else {}


def scripted_worker(
    config: RunConfig,
    env: Environment[Any, Any],
    assignments: Mapping[str, Assignment],
    rollout: RolloutConfig,
    stand_in: str,
) -> Worker:
    """A worker without engines; `assignments` are the players of tasks where they differ from
    [roles]."""
    others = {
        task: {role: _player(config, env, name, stand_in) for role, name in assignment.items()}
        for task, assignment in assignments.items()
    }
    players = scripted_players(config, env, stand_in)
    return Worker(env, players, rollout, config.reward, others)


async def _judge(
    config: RunConfig,
    env: Environment[Any, Any],
    tasks: Sequence[Task],
    assignments: Mapping[str, Assignment],
    episodes: Sequence[Episode],
    stand_in: str,
) -> None:
    """Judge without engines: the environment's rule replaces judges that need a model."""
    section, rule = config.judge, RuleJudge.Config(kind=RULE)
    assert section is not None  # noqa: S101 - the caller checked
    judges = {n: rule if judge.needs_model else judge for n, judge in section.judges.items()}
    section = section.model_copy(update={"judges": judges})
    references: list[Episode] = []
    if section.against == "reference":
        players = reference_assignments(config, section.reference, tasks, assignments)
        rollout = config.rollout.linear(section.num_references)
        worker = scripted_worker(config, env, players, rollout, stand_in)
        await worker.run(tasks, config.seed, references.append, FIRST_REFERENCE)
    made = make_judges(section, JudgeContext(env.rule, _no_judge_model, seed=config.seed))
    share = config.rollout.max_failure_share
    await judge_all(episodes, references, section, made, share)
    for judge in made.values():
        await judge.close()


def _no_judge_model(policy: str) -> JudgeModel:
    raise AssertionError(policy)  # a rule replaces judges that need a model


def collect(
    config: RunConfig,
    folder: Path,
    stand_in: str = "random",
    split: Split = "train",
    on_episode: Callable[[Episode], None] = lambda _: None,
) -> Summary:
    """Sample episodes of the first tasks of a split, assign credit, and write both to a folder.

    Episodes are written in the order of tasks. The scripted player `stand_in` replaces policies
    that need an engine.
    """
    env = make_env_for(config.env)
    if config.rollout.type != "linear":
        check_start(env, forks=True, split=split)
    tasks = list(itertools.islice(env.tasks(split), config.rollout.num_tasks))
    assignments = _assignments(config, tasks)
    worker = scripted_worker(config, env, assignments, config.rollout, stand_in)
    episodes: list[Episode] = []

    def deliver(episode: Episode) -> None:
        episodes.append(episode)
        on_episode(episode)

    asyncio.run(worker.run(tasks, config.seed, deliver))
    episodes = in_order(episodes, tasks)
    if config.judge is not None:
        asyncio.run(_judge(config, env, tasks, assignments, episodes, stand_in))
    algorithm = make_algorithm_for(config)
    algorithm.assign(episodes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(to_toml(config), encoding="utf-8")
    remember_code(config)
    (folder / ALGORITHM_FILE).write_text(json.dumps(algorithm.state()), encoding="utf-8")
    write_episodes(folder / EPISODES_FILE, episodes)
    return summarize(episodes, config)
