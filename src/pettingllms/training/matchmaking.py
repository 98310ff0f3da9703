"""Matchmaking: components that choose which player answers for which role of a task.

A league and a co-player schedule also take snapshots of policies, which engines then serve under
names such as `shared@20`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pettingllms.config import RewardConfig
from pettingllms.league import Assignment, CoPlayers, League, Snapshot, mean_reward, rotations
from pettingllms.policies.files import Saved
from pettingllms.training.component import Component, RunContext, TrainStep
from pettingllms.training.evaluate import evaluate_co_players
from pettingllms.training.judging import JudgeRewards

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


class RoleRotation(Component):
    """Rotates policies over roles from task to task (`rollout.rotate_roles`)."""

    def __init__(self, roles: Assignment) -> None:
        self._roles = roles

    def before_step(self, step: TrainStep) -> None:
        step.assignments = rotations(self._roles, step.tasks, step.num_tasks_done)


class LeagueMatchmaking(Component):
    """Plays part of the tasks against opponents of a league, and takes snapshots into its pool."""

    name = "league"

    def __init__(self, league: League, reward: RewardConfig) -> None:
        self._league = league
        self._reward = reward

    async def start(self, context: RunContext) -> None:
        self._team = context.team
        await _load_snapshots(self._team, self._league.pool, context.saved)
        if not context.num_steps_done:
            await self._take_snapshots(0)

    def before_step(self, step: TrainStep) -> None:
        step.assignments = self._league.assignments(step.number, step.tasks)

    async def after_step(self, step: TrainStep) -> None:
        scores = self._league.record(step.tasks, step.assignments, step.episodes, self._reward)
        await self._take_snapshots(step.number)
        step.add_metrics("league", {**scores, **self._league.metrics()})

    def state_dict(self) -> dict[str, Any]:
        return self._league.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._league.load_state_dict(state)

    async def _take_snapshots(self, step: int) -> None:
        for policy in self._league.members if self._league.is_due(step) else ():
            snapshot = await _take_snapshot(self._team, policy, step)
            for removed in self._league.add_snapshot(snapshot):
                await self._team.snapshots.drop(removed.name)


class CoPlayerSchedule(Component):
    """Changes the learners' co-players on a schedule, and measures the effect of each change."""

    name = "co_players"

    def __init__(
        self, co_players: CoPlayers, reward: RewardConfig, every: int, judge: JudgeRewards | None
    ) -> None:
        """`every`: steps between evaluations with the co-players of all phases so far; 0: none."""
        self._co_players = co_players
        self._reward = reward
        self._every = every
        self._judge = judge

    async def start(self, context: RunContext) -> None:
        self._team = context.team
        await _load_snapshots(self._team, self._co_players.pool, context.saved)
        if not context.num_steps_done:
            await self._take_snapshots(0)

    def before_step(self, step: TrainStep) -> None:
        step.assignments = self._co_players.assignments(step.number, step.tasks)

    async def after_step(self, step: TrainStep) -> None:
        co_players = self._co_players
        reward = mean_reward(step.episodes, co_players.learners, self._reward)
        await self._take_snapshots(step.number)
        metrics = co_players.record(step.number, reward)
        step.add_metrics("co_players", metrics)
        if "switched" in metrics:
            step.callback.on_message(
                f"co-players change after step {step.number}: phase {co_players.phase + 1}"
            )
        if self._every and step.number % self._every == 0:
            judges = self._judge.judges if self._judge else None
            with step.phase("playing earlier co_players"):
                rewards = await evaluate_co_players(self._team, co_players, judges)
            step.add_metrics("co_players", co_players.compare(rewards))

    def state_dict(self) -> dict[str, Any]:
        return self._co_players.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._co_players.load_state_dict(state)

    async def _take_snapshots(self, step: int) -> None:
        for policy in self._co_players.due(step):
            self._co_players.pool.append(await _take_snapshot(self._team, policy, step))


async def _take_snapshot(team: "Team", policy: str, step: int) -> Snapshot:
    """Freeze the current weights of a policy under a new name."""
    version = team.versions[policy]
    name = Snapshot(policy, step, version).name
    weight_hash = await team.snapshots.take(name, policy, version)
    return Snapshot(policy, step, version, weight_hash)


async def _load_snapshots(team: "Team", pool: Sequence[Snapshot], saved: Saved) -> None:
    """Serve the snapshots of a checkpoint."""
    for one in pool:
        files = saved.get(one.name)
        await team.snapshots.load(one.name, one.policy, one.version, one.weight_hash, files)
    if pool:
        await team.check_together()
