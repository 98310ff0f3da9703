"""Curriculum: tasks become harder when roles succeed.

The level follows `success`, which is never part of an advantage. The window starts empty at each
level, so that success on easy tasks is not counted twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.algos.credit import mean
from pettingllms.config.curriculum import CurriculumConfig
from pettingllms.envs import Environment
from pettingllms.training.component import Component, RunContext, TrainStep
from pettingllms.types import Episode


@dataclass(frozen=True, slots=True)
class Curriculum:
    """A level, counted from 1, and the success of recent steps at this level."""

    config: CurriculumConfig
    level: int = 1
    recent: tuple[float, ...] = ()
    """Success of the last steps at this level, oldest first."""

    @property
    def success(self) -> float:
        """Mean over the window."""
        return mean(self.recent)

    def with_step(self, success: float) -> "Curriculum":
        """The same level, with one more step in its window."""
        return replace(self, recent=(*self.recent, success)[-self.config.window :])

    def next(self) -> "Curriculum":
        """The curriculum of the next step: at the same level, or at another with an empty window.

        The level changes only once the window is full."""
        change = self._change() if len(self.recent) == self.config.window else 0
        level = min(max(1, self.level + change), len(self.config.levels))
        return self if level == self.level else Curriculum(self.config, level)

    def _change(self) -> int:
        if self.success >= self.config.raise_at:
            return 1
        low = self.config.lower_at
        return -1 if low is not None and self.success < low else 0


class CurriculumSchedule(Component):
    """Replaces the environment of training when the curriculum changes its level."""

    name = "curriculum"

    def __init__(
        self,
        config: CurriculumConfig,
        roles: Iterable[str],
        env_at: Callable[[int], Environment[Any, Any]],
    ) -> None:
        """`env_at` creates the environment of a level."""
        self._curriculum = Curriculum(config)
        self._roles = [config.role] if config.role else list(roles)
        self._env_at = env_at

    async def start(self, context: RunContext) -> None:
        self._context = context
        self._enter_level()

    async def after_step(self, step: TrainStep) -> None:
        now = self._curriculum.with_step(success_share(step.episodes, self._roles))
        step.add_metrics("curriculum", {"level": float(now.level), "success": now.success})
        self._curriculum = now.next()
        if self._curriculum.level != now.level:
            self._enter_level()
            step.callback.on_message(
                f"curriculum: {now.success:.0%} success at level {now.level}; after step "
                f"{step.number} the level is {self._curriculum.level}, {self._context.team.env.id}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"level": self._curriculum.level, "recent": list(self._curriculum.recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._curriculum = replace(
            self._curriculum, level=state["level"], recent=tuple(state["recent"])
        )

    def _enter_level(self) -> None:
        env = self._env_at(self._curriculum.level)
        self._context.team.env = env
        self._context.ledger.change(env.tasks("train"))


def success_share(episodes: Sequence[Episode], roles: Iterable[str]) -> float:
    """Mean success of the policies' ordinary samples over roles and episodes.

    A failed episode counts as no success. `config.checks` rejects rollouts that cannot measure it.
    """
    found = [episode.sampled_success(role) for role in roles for episode in episodes]
    return mean([0.0 if share is None else share for share in found])
