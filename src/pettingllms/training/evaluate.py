"""Evaluation: rollouts without learners on test tasks, and exploitability in small games."""

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.algos.credit import mean
from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import EvalConfig, RunConfig
from pettingllms.config.policies import TRAINED_KINDS, ScriptedPolicy
from pettingllms.envs import make_test_env
from pettingllms.envs.base import Environment
from pettingllms.errors import ConfigError
from pettingllms.exploitability import Tree, check_all_read, measure
from pettingllms.league import SCRIPT, Assignment, CoPlayers
from pettingllms.policies.files import Saved
from pettingllms.runs.scores import RoleScore, score
from pettingllms.seeds import derive_seed
from pettingllms.training.initial_weights import initial_weights
from pettingllms.training.judging import RolloutInputs, RunJudges, check_judges, team_judges
from pettingllms.types import Episode, Task, write_episodes

__all__ = ["Evaluation", "evaluate"]

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team

Assign = Callable[[Sequence[Task]], Mapping[str, Assignment]]
"""Chooses the players of tasks, by task id."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation."""

    scores: dict[str, RoleScore]
    """By role."""
    exploitability: dict[str, dict[str, float]]
    """By policy with an engine, if `eval.exploitability` is set; otherwise empty."""


def evaluate(
    config: RunConfig,
    saved: Saved,
    notify: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
    out: Path | None = None,
) -> Evaluation:
    """Evaluate the weights of a checkpoint, or of `train.init_from`, without learners."""

    async def run() -> Evaluation:
        async with inference_team(config, weights, notify) as team, team_judges(team) as judges:
            scores = await evaluate_team(team, progress, out, judges=judges)
            return Evaluation(scores, await team_exploitability(team, tree) if tree else {})

    check_judges(config)
    weights = saved or initial_weights(config)
    tree = game_tree(config) if config.eval.exploitability else None
    return asyncio.run(run())


def game_tree(config: RunConfig) -> Tree:
    """The whole game tree of the environment of evaluation."""
    tree = Tree(make_test_env(config))
    models = [role for role, name in config.roles.items() if _has_engine(config, name)]
    check_all_read(tree, models)
    return tree


def _has_engine(config: RunConfig, policy: str) -> bool:
    return config.policies[policy].kind in (*TRAINED_KINDS, "frozen")


async def team_exploitability(team: "Team", tree: Tree) -> dict[str, dict[str, float]]:
    """How far each policy with an engine is from equilibrium play, in the roles that it plays."""
    roles_of: dict[str, list[str]] = {}
    for role, name in team.config.roles.items():
        if _has_engine(team.config, name):
            roles_of.setdefault(name, []).append(role)
    table: dict[int, list[float]] = {}
    legal: dict[str, float] = {}
    for name, roles in roles_of.items():
        places = [at for at, info in enumerate(tree.infos) if info.role in roles]
        asked = [(tree.infos[at].messages, tree.infos[at].replies) for at in places]
        temperature = _temperature(team.config, name)
        found = await team.reply_logprobs(name, asked, temperature)
        table |= {
            at: _normalized(some, temperature) for at, some in zip(places, found, strict=True)
        }
        legal[name] = mean([_legal_share(some, temperature) for some in found])
    return {
        name: {**measure(tree, table, roles), "legal_share": legal[name]}
        for name, roles in roles_of.items()
    }


def _temperature(config: RunConfig, policy: str) -> float:
    """The temperature at which a policy with an engine plays in an evaluation."""
    section = config.policies[policy]
    assert not isinstance(section, ScriptedPolicy)  # noqa: S101 - it has an engine
    own = config.eval.temperature
    return section.temperature if own is None else own


def _normalized(logprobs: Sequence[float], temperature: float) -> list[float]:
    """Probabilities of the legal replies, normalized among themselves. At temperature 0 the most
    likely reply has probability 1."""
    best = max(logprobs)
    if temperature == 0:
        weights = [float(logprob == best) for logprob in logprobs]
    else:
        weights = [math.exp(logprob - best) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


def _legal_share(logprobs: Sequence[float], temperature: float) -> float:
    """Probability that a reply is legal."""
    if temperature == 0:
        return float(max(logprobs) == 0)
    return math.fsum(map(math.exp, logprobs))


async def evaluate_anchors(
    team: "Team", anchors: Sequence[str], judges: RunJudges | None = None
) -> dict[str, dict[str, float]]:
    """For each policy that learns: its success against scripted players, which never change.

    Each of its roles plays the test tasks once, with the anchor in all other roles.
    """
    config = team.config
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for role, policy in config.roles.items():
        if policy not in config.trained_policies():
            continue
        for anchor in anchors:
            players = {**dict.fromkeys(config.roles, SCRIPT + anchor), role: policy}
            scores = await evaluate_team(
                team, assign=partial(_same_for_all, players), judges=judges
            )
            found[policy][f"anchor_{anchor}"].append(scores[role].avg.value)
            reward = scores[role].reward
            if reward is not None:
                found[policy][f"anchor_{anchor}_reward"].append(reward)
    return {
        policy: {name: mean(values) for name, values in numbers.items()}
        for policy, numbers in found.items()
    }


def _same_for_all(players: Assignment, tasks: Sequence[Task]) -> dict[str, Assignment]:
    return {task.id: players for task in tasks}


async def evaluate_co_players(
    team: "Team", co_players: CoPlayers, judges: RunJudges | None = None
) -> dict[int, float]:
    """The learners' mean reward with the co-players of each phase so far, by phase from 0."""
    found: dict[int, float] = {}
    for phase in range(co_players.phase + 1):
        assign = partial(co_players.assignments_of, phase)
        scores = await evaluate_team(team, assign=assign, judges=judges)
        rewards = [scores[role].reward for role in co_players.learners]
        scored = [reward for reward in rewards if reward is not None]
        if scored:
            found[phase] = mean(scored)
    return found


async def evaluate_team(
    team: "Team",
    progress: Callable[[int], None] = lambda _: None,
    out: Path | None = None,
    assign: Assign = lambda _: {},
    judges: RunJudges | None = None,
    inspect: Callable[[Sequence[Episode]], None] = lambda _: None,
) -> dict[str, RoleScore]:
    """Scores of each role on the test tasks, with the current weights.

    `assign` chooses the players of each task where they differ from [roles]. `inspect` is called
    with the episodes.
    """
    config = team.config
    tasks = eval_tasks(team.test_env, config.eval)
    rollout = config.rollout.linear(config.eval.num_samples)
    if config.eval.max_reply_tokens is not None:
        limits = {"max_reply_tokens": config.eval.max_reply_tokens, "reply_tokens": {}}
        rollout = rollout.model_copy(update=limits)
    seed = derive_seed(config.seed, "eval")
    assignments = assign(tasks)
    episodes: list[Episode] = await team.play(
        tasks,
        seed,
        rollout,
        config.eval.temperature,
        progress,
        env=team.test_env,
        assignments=assignments,
        truncation=config.eval.truncation,
    )
    if judges is not None:
        inputs = RolloutInputs(tasks, seed, assignments, team.test_env)
        await judges.judge(episodes, inputs, by_score=True)
    inspect(episodes)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(out, episodes)
    ids = [task.id for task in tasks]
    return score(episodes, ids, config.eval.num_samples, list(config.roles), config.reward)


def eval_tasks(env: Environment[Any, Any], config: EvalConfig) -> list[Task]:
    """The test tasks of `[eval]`; raise ConfigError if there are none."""
    first, last = config.first_task, config.first_task + config.num_tasks
    tasks = list(itertools.islice(env.tasks("test"), first, last))
    if not tasks:
        raise ConfigError(
            "[eval]", [f"first_task: {first} is past the end of the environment's test tasks"]
        )
    return tasks
