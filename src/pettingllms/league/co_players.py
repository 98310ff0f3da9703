"""Co-players on a schedule, and the effect of each change on the learners.

A learner that always meets the same co-players overfits to them. Here they change by a schedule,
and the effect is measured: the reward before and after each switch, the steps to recover, and, if
the run evaluates, how much the learners forgot about earlier co-players. All draws follow from the
run's seed and from rewards, so a resumed run meets the same co-players.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from pettingllms.algos.credit import role_reward
from pettingllms.config import RewardConfig
from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.league.payoff import Assignment
from pettingllms.league.pool import Snapshot
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Scored, Task

SEED_NAME = "company"
"""Part of the seeds by which members are drawn. Another string would draw other members."""


@dataclass(slots=True)
class Switch:
    """A change of co-players, and the learners' rewards since."""

    step: int
    """First step with the new co-players."""
    before: float
    """Mean reward over the window before the switch."""
    rewards: list[float] = field(default_factory=list)
    """Rewards of the steps since the switch, until recovery."""
    recovered_after: int | None = None
    """Steps until the mean over a window recovered; None: not yet."""


@dataclass(slots=True)
class CoPlayers:
    """The current phase of the schedule, and the statistics of its switches."""

    config: CoPlayersConfig
    roles: Assignment
    """The assignment of [roles]."""
    filled_roles: tuple[str, ...]
    """Roles that co-players fill."""
    seed: int
    phase: int = 0
    since: int = 1
    """First step of the phase."""
    recent: list[float] = field(default_factory=list)
    """Mean reward of the learners in the last steps of the phase."""
    switches: list[Switch] = field(default_factory=list)
    pool: list[Snapshot] = field(default_factory=list)
    """Snapshots taken so far."""
    best: dict[str, float] = field(default_factory=dict)
    """Best evaluation reward with the co-players of each phase, by phase."""

    @property
    def learners(self) -> list[str]:
        """Roles that co-players do not fill."""
        return [role for role in self.roles if role not in self.filled_roles]

    def mixture(self, step: int) -> dict[str, float]:
        """Probability of each member in a step."""
        phases = self.config.phases
        now = _shares(phases[self.phase].members)
        drift = phases[self.phase].drift
        new = min(1.0, (step - self.since + 1) / (drift + 1))
        if new == 1.0:
            return now
        before = _shares(phases[self.phase - 1].members)
        return {
            name: (1 - new) * before.get(name, 0.0) + new * now.get(name, 0.0)
            for name in [*before, *(name for name in now if name not in before)]
        }

    def assignments(self, step: int, tasks: Sequence[Task]) -> dict[str, Assignment]:
        """Assignments of a step, by task id."""
        return self._drawn(self.mixture(step), tasks, (SEED_NAME, step))

    def assignments_of(self, phase: int, tasks: Sequence[Task]) -> dict[str, Assignment]:
        """Assignments with the co-players of a phase, after its drift, by task id."""
        members = _shares(self.config.phases[phase].members)
        return self._drawn(members, tasks, (f"{SEED_NAME} of", phase))

    def due(self, step: int) -> list[str]:
        """Policies whose snapshot is due after a step."""
        taken = [snapshot.name for snapshot in self.pool]
        wanted = [policy for policy, at in self.config.snapshots() if at == step]
        return [p for p in dict.fromkeys(wanted) if f"{p}@{step}" not in taken]

    def record(self, step: int, reward: float | None) -> dict[str, float]:
        """Record the learners' reward of a step, and enter the next phase if it is due."""
        metrics = {"phase": float(self.phase + 1)}
        if reward is None:
            return metrics
        self.recent = [*self.recent, reward][-self.config.window :]
        metrics["reward"] = reward
        if self.switches:
            self._recover(self.switches[-1], reward)
            metrics |= _measured(self.switches[-1], self.config.window)
        if self._is_over(step):
            self.switches.append(Switch(step + 1, fmean(self.recent)))
            self.phase, self.since, self.recent = self.phase + 1, step + 1, []
            metrics["switched"] = 1.0
        return metrics

    def compare(self, rewards: Mapping[int, float]) -> dict[str, float]:
        """Forgetting metrics, from current evaluation rewards with the co-players of each phase."""
        metrics = {f"eval_phase_{phase + 1}": reward for phase, reward in rewards.items()}
        lost = [self.best.get(str(p), r) - r for p, r in rewards.items() if p != self.phase]
        if lost:
            metrics["forgetting"] = fmean(lost)
        for phase, reward in rewards.items():
            self.best[str(phase)] = max(reward, self.best.get(str(phase), reward))
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, as plain data."""
        return {
            "phase": self.phase,
            "since": self.since,
            "recent": list(self.recent),
            "switches": [asdict(switch) for switch in self.switches],
            "pool": [asdict(snapshot) for snapshot in self.pool],
            "best": dict(self.best),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.phase, self.since = state["phase"], state["since"]
        self.recent = list(state["recent"])
        self.switches = [Switch(**switch) for switch in state["switches"]]
        self.pool = [Snapshot(**snapshot) for snapshot in state["pool"]]
        self.best = dict(state["best"])

    def _drawn(
        self, mixture: Mapping[str, float], tasks: Sequence[Task], seed: tuple[int | str, ...]
    ) -> dict[str, Assignment]:
        names, weights = list(mixture), list(mixture.values())
        found: dict[str, Assignment] = {}
        for task in tasks:
            rng = random.Random(derive_seed(self.seed, *seed, task.id))
            (member,) = rng.choices(names, weights)
            found[task.id] = {
                r: member if r in self.filled_roles else p for r, p in self.roles.items()
            }
        return found

    def _is_over(self, step: int) -> bool:
        if self.phase + 1 >= len(self.config.phases):
            return False
        phase = self.config.phases[self.phase]
        if phase.until_step is not None and step >= phase.until_step:
            return True  # or past it: the phase began late, or that step had no reward
        if phase.until_reward is None or len(self.recent) < self.config.window:
            return False
        return fmean(self.recent) >= phase.until_reward

    def _recover(self, switch: Switch, reward: float) -> None:
        if switch.recovered_after is not None:
            return
        switch.rewards.append(reward)
        window = self.config.window
        lost = (1 - self.config.recover_share) * abs(switch.before)
        if (
            len(switch.rewards) >= window
            and fmean(switch.rewards[-window:]) >= switch.before - lost
        ):
            switch.recovered_after = len(switch.rewards)


def _measured(switch: Switch, window: int) -> dict[str, float]:
    """Metrics of a switch."""
    found = {"before": switch.before}
    if len(switch.rewards) >= window:
        found["after"] = fmean(switch.rewards[:window])
        found["drop"] = switch.before - found["after"]
    if switch.recovered_after is not None:
        found["steps_to_recover"] = float(switch.recovered_after)
    return found


def _shares(members: Mapping[str, float]) -> dict[str, float]:
    total = sum(members.values())
    return {name: weight / total for name, weight in members.items()}


def mean_reward(
    episodes: Sequence[Episode], roles: Sequence[str], reward: RewardConfig
) -> float | None:
    """Mean reward of roles over episodes; None if there is none."""
    rewards = [role_reward(episode, role, reward) for episode in episodes for role in roles]
    values = [one.value for one in rewards if isinstance(one, Scored)]
    return fmean(values) if values else None


def make_co_players(
    config: CoPlayersConfig, roles: Assignment, policies: Mapping[str, Any], seed: int
) -> CoPlayers:
    """The co-player schedule of a run before its first step."""
    return CoPlayers(config, roles, tuple(config.filled_roles(roles, policies)), seed)
