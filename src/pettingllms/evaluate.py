"""Evaluation: the same rollouts with no learner, on tasks that are never trained on."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.cluster.start import ray_running
from pettingllms.config import EvalConfig, RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.envs.base import Environment
from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.learners.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, OPTIMIZER_FILE
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.scores import RoleScore, score
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task, write_episodes

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team

Saved = Mapping[str, Mapping[str, bytes]]


def evaluate(
    config: RunConfig,
    saved: Saved,
    say: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
    out: Path | None = None,
) -> dict[str, RoleScore]:
    """Start the engines alone, with the weights of a checkpoint, else of `train.start`; play."""

    async def run() -> dict[str, RoleScore]:
        from pettingllms.cluster.team import Team

        team = await Team.start(config, say, learning=False)
        try:
            if weights:
                await team.load_engines(weights)
            return await evaluate_team(team, progress, out)
        finally:
            await team.stop()

    weights = saved or start_weights(config)
    with ray_running(config.cluster):
        return asyncio.run(run())


def start_weights(config: RunConfig) -> Saved:
    """The weights that policies begin with, where the configuration names another run."""
    if not config.train.start:
        return {}
    saved = RunFolder(Path(config.train.start)).weights(sorted(config.trained_policies()))
    for policy, files in saved.items():
        _refuse_another_kind(config, policy, files)
    return {
        policy: {name: file for name, file in files.items() if name != OPTIMIZER_FILE}
        for policy, files in saved.items()
    }


def _refuse_another_kind(config: RunConfig, policy: str, files: Mapping[str, bytes]) -> None:
    """Refuse weights that would not fit, or would fit and mean something else."""
    section = config.policies[policy]
    if (MODEL_FILE if isinstance(section, FullPolicy) else ADAPTER_FILE) not in files:
        other = "an adapter" if ADAPTER_FILE in files else "a whole model"
        raise CheckpointError(
            f"'{policy}' is of the kind {section.kind}, and {config.train.start} has {other} for "
            f"it; set policies.{policy}.kind to that, or export it and set policies.{policy}.model"
        )
    if isinstance(section, LoraPolicy):
        saved = json.loads(files[ADAPTER_CONFIG])
        was = {"rank": saved["r"], "alpha": saved["lora_alpha"]}
        for key, value in was.items():
            if getattr(section, key) != value:
                raise CheckpointError(
                    f"policies.{policy}.{key} is {getattr(section, key)}, and the adapter in "
                    f"{config.train.start} was trained with {value}; set it to that"
                )


async def evaluate_team(
    team: "Team", progress: Callable[[int], None] = lambda _: None, out: Path | None = None
) -> dict[str, RoleScore]:
    """Play test tasks with the weights that the team has now."""
    config = team.config
    tasks = eval_tasks(team.test_env, config.eval)
    rollout = config.rollout.model_copy(
        update={"type": "linear", "num_samples": config.eval.num_samples}
    )
    episodes: list[Episode] = await team.play(
        tasks,
        derive_seed(config.seed, "eval"),
        rollout,
        config.eval.temperature,
        progress,
        env=team.test_env,
    )
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
