"""Evaluation: the same rollouts with no learner, on tasks that are never trained on, and for games
that can be written out the distance from perfect play."""

import asyncio
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.algos.credit import mean
from pettingllms.cluster.inference_team import playing_team
from pettingllms.cluster.judges import Played
from pettingllms.config import EvalConfig, RunConfig
from pettingllms.config.policies import TRAINED_KINDS, FullPolicy, LoraPolicy, ScriptedPolicy
from pettingllms.envs import make_test_env
from pettingllms.envs.base import Environment
from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.exploitability import Tree, check_all_read, measure
from pettingllms.league import SCRIPT, Assignment, CoPlayers
from pettingllms.learners.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, OPTIMIZER_FILE
from pettingllms.policies import plan_critics
from pettingllms.policies.files import Files, Saved
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.scores import RoleScore, score
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task, write_episodes

__all__ = ["Evaluation", "evaluate"]

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a team is."""

    scores: dict[str, RoleScore]
    """By role."""
    exploitability: dict[str, dict[str, float]]
    """By policy with an engine, if `eval.exploitability` asks for it; else empty."""


def evaluate(
    config: RunConfig,
    saved: Saved,
    notify: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
    out: Path | None = None,
) -> Evaluation:
    """Start the engines alone, with the weights of a checkpoint or of `train.init_from`; play."""

    async def run() -> Evaluation:
        async with playing_team(config, weights, notify) as team:
            scores = await evaluate_team(team, progress, out)
            return Evaluation(scores, await team_exploitability(team, tree) if tree else {})

    weights, tree = saved or start_weights(config), written_out(config)
    return asyncio.run(run())


def written_out(config: RunConfig) -> Tree | None:
    """The whole game that is evaluated on, if distances are asked for."""
    if not config.eval.exploitability:
        return None
    tree = Tree(make_test_env(config))
    models = [role for role, name in config.roles.items() if _has_engine(config, name)]
    check_all_read(tree, models)
    return tree


def _has_engine(config: RunConfig, policy: str) -> bool:
    return config.policies[policy].kind in (*TRAINED_KINDS, "frozen")


async def team_exploitability(team: "Team", tree: Tree) -> dict[str, dict[str, float]]:
    """How far each policy with an engine is from perfect play, in the players that it has."""
    players: dict[str, list[str]] = {}
    for role, name in team.config.roles.items():
        if _has_engine(team.config, name):
            players.setdefault(name, []).append(role)
    table: dict[int, list[float]] = {}
    legal: dict[str, float] = {}
    for name, roles in players.items():
        places = [at for at, info in enumerate(tree.infos) if info.role in roles]
        asked = [(tree.infos[at].messages, tree.infos[at].replies) for at in places]
        temperature = _temperature(team.config, name)
        found = await team.reply_logprobs(name, asked, temperature)
        table |= {at: _among(some, temperature) for at, some in zip(places, found, strict=True)}
        legal[name] = mean([_legal_share(some, temperature) for some in found])
    return {
        name: {**measure(tree, table, roles), "legal_share": legal[name]}
        for name, roles in players.items()
    }


def _temperature(config: RunConfig, policy: str) -> float:
    """The temperature at which a policy with an engine plays in an evaluation."""
    section = config.policies[policy]
    assert not isinstance(section, ScriptedPolicy)  # noqa: S101 - it has an engine
    own = config.eval.temperature
    return section.temperature if own is None else own


def _among(logprobs: Sequence[float], temperature: float) -> list[float]:
    """Probabilities among the replies that were asked about alone. At temperature 0 they are the
    limit of low temperatures: the reply that is nearest to the likeliest one is certain."""
    best = max(logprobs)
    if temperature == 0:
        weights = [float(logprob == best) for logprob in logprobs]
    else:
        weights = [math.exp(logprob - best) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


def _legal_share(logprobs: Sequence[float], temperature: float) -> float:
    """Probability that a reply is one of those that were asked about."""
    if temperature == 0:
        return float(max(logprobs) == 0)
    return math.fsum(map(math.exp, logprobs))


def start_weights(config: RunConfig) -> Saved:
    """The weights that policies begin with, where the configuration names another run."""
    if not config.train.init_from:
        return {}
    saved = RunFolder(Path(config.train.init_from)).weights(sorted(config.trained_policies()))
    for policy, files in saved.items():
        _refuse_another_kind(config, policy, files, config.train.init_from)
    return {
        policy: {name: file for name, file in files.items() if name != OPTIMIZER_FILE}
        for policy, files in saved.items()
    }


def check_same_policies(config: RunConfig, saved: Saved, run: Path) -> None:
    """Refuse to go on with a run whose checkpoint is of another team than its configuration."""
    critics = (plan.name for plan in plan_critics(config))
    for name in (*sorted(config.trained_policies()), *critics):
        if name not in saved:
            raise CheckpointError(
                f"the checkpoint in {run} has no '{name}', it has {', '.join(sorted(saved))}; give "
                "its configuration back the names it had, or begin a new run with train.init_from"
            )
        if name in config.policies:
            _refuse_another_kind(config, name, saved[name], str(run))


def _refuse_another_kind(config: RunConfig, policy: str, files: Files, where: str) -> None:
    """Refuse weights that would not fit, or would fit and mean something else."""
    section = config.policies[policy]
    if (MODEL_FILE if isinstance(section, FullPolicy) else ADAPTER_FILE) not in files:
        other = "an adapter" if ADAPTER_FILE in files else "a whole model"
        raise CheckpointError(
            f"'{policy}' is of the kind {section.kind}, and {where} has {other} for "
            f"it; set policies.{policy}.kind to that, or export it and set policies.{policy}.model"
        )
    if isinstance(section, LoraPolicy):
        saved = json.loads(files[ADAPTER_CONFIG])
        was = {"rank": saved["r"], "alpha": saved["lora_alpha"]}
        for key, value in was.items():
            if getattr(section, key) != value:
                raise CheckpointError(
                    f"policies.{policy}.{key} is {getattr(section, key)}, and the adapter in "
                    f"{where} was trained with {value}; set it to that"
                )


async def evaluate_anchors(team: "Team") -> dict[str, dict[str, float]]:
    """For each policy that learns: how it does against scripted players, which never change.

    Its roles play the test tasks one at a time, with the anchor in all other players.
    """
    config = team.config
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for role, policy in config.roles.items():
        if policy not in config.trained_policies():
            continue
        for anchor in config.guard.anchors:
            against = {**dict.fromkeys(config.roles, SCRIPT + anchor), role: policy}
            score = (await evaluate_team(team, assignment=against))[role]
            found[policy][f"anchor_{anchor}"].append(score.avg.value)
            if score.reward is not None:
                found[policy][f"anchor_{anchor}_reward"].append(score.reward)
    return {
        policy: {name: mean(values) for name, values in numbers.items()}
        for policy, numbers in found.items()
    }


async def evaluate_co_players(team: "Team", co_players: CoPlayers) -> dict[int, float]:
    """The learners' reward with the co_players of each phase so far, by its number from 0."""
    found: dict[int, float] = {}
    for phase in range(co_players.phase + 1):
        scores = await evaluate_team(team, co_players=(co_players, phase))
        rewards = [scores[role].reward for role in co_players.learners]
        paid = [reward for reward in rewards if reward is not None]
        if paid:
            found[phase] = mean(paid)
    return found


async def evaluate_team(
    team: "Team",
    progress: Callable[[int], None] = lambda _: None,
    out: Path | None = None,
    assignment: Assignment | None = None,
    co_players: tuple[CoPlayers, int] | None = None,
) -> dict[str, RoleScore]:
    """Play test tasks with the weights that the team has now, by whom [roles] or the assignment
    names, or with the co_players of a phase."""
    config = team.config
    tasks = eval_tasks(team.test_env, config.eval)
    rollout = config.rollout.linear(config.eval.num_samples)
    seed = derive_seed(config.seed, "eval")
    assignments = {task.id: assignment for task in tasks} if assignment else {}
    if co_players is not None:
        assignments = co_players[0].assignments_of(co_players[1], tasks)
    episodes: list[Episode] = await team.play(
        tasks,
        seed,
        rollout,
        config.eval.temperature,
        progress,
        env=team.test_env,
        assignments=assignments,
    )
    if config.judge.is_on:
        played = Played(tasks, seed, assignments, team.test_env)
        await team.judge(episodes, played, by_score=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(out, episodes)
    ids = [task.id for task in tasks]
    return score(episodes, ids, config.eval.num_samples, list(config.roles), config.reward)


def eval_tasks(env: Environment[Any, Any], config: EvalConfig) -> list[Task]:
    """The tasks that `[eval]` names; never none, which would be a score of nothing."""
    first, last = config.first_task, config.first_task + config.num_tasks
    tasks = list(itertools.islice(env.tasks("test"), first, last))
    if not tasks:
        raise ConfigError(
            "[eval]", [f"first_task: {first} is past the end of the environment's test tasks"]
        )
    return tasks
