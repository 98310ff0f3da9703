"""Where a run is in its curriculum: a level, and how the last steps went there.

The level follows from `success`, which a role cannot argue with and which no advantage is made of:
it decides what is played next, and nothing else. A window begins anew at every level, so one good
stretch on easy tasks is not counted twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pettingllms.algos.credit import mean
from pettingllms.config.curriculum import CurriculumConfig
from pettingllms.types import Episode


@dataclass(frozen=True, slots=True)
class Curriculum:
    """A level, counted from 1, and what is remembered of it."""

    config: CurriculumConfig
    level: int = 1
    recent: tuple[float, ...] = ()
    """Success in the last steps at this level, oldest first."""

    @property
    def success(self) -> float:
        """Over the window; it decides once the window is full."""
        return mean(self.recent)

    def with_step(self, success: float) -> "Curriculum":
        """The same level, with one more step in its window."""
        return replace(self, recent=(*self.recent, success)[-self.config.window :])

    def moved(self) -> "Curriculum":
        """What the next step is played at: the same, or another level with an empty window."""
        change = self._change() if len(self.recent) == self.config.window else 0
        level = min(max(1, self.level + change), len(self.config.levels))
        return self if level == self.level else Curriculum(self.config, level)

    def _change(self) -> int:
        if self.success >= self.config.raise_at:
            return 1
        low = self.config.lower_at
        return -1 if low is not None and self.success < low else 0


def success_share(episodes: Sequence[Episode], roles: Iterable[str]) -> float:
    """How often the policies reach a role's aim, as a mean over roles and episodes; an episode that
    failed did not reach it. `config.checks` rejects rollouts that cannot tell."""
    found = [episode.sampled_success(role) for role in roles for episode in episodes]
    return mean([0.0 if share is None else share for share in found])
