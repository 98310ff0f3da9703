"""RAE: role-conditioned advantage estimation, a running baseline for each role (Liu et al., 2025).

In self-play one policy sits in every player, and players are not equal: who moves first wins more.
A baseline for each environment and role, moved slowly from batch to batch, takes the player's
advantage out of the reply's, and needs one play of a task instead of several. The baseline is
part of the run: `state` is saved with it, and `load_state` takes it up again. A batch is compared
with the baseline from before it, and then moves it as a whole, so that the order of plays does
not matter.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from pettingllms.algos.base import Algorithm, reward_list
from pettingllms.algos.credit import mean
from pettingllms.config import AlgoConfig, RewardConfig
from pettingllms.types import Episode, Group


class RaeConfig(AlgoConfig):
    """Options of RAE."""

    decay: float = Field(default=0.95, ge=0, lt=1)
    """How much of a baseline one more play leaves in place."""


class Rae(Algorithm):
    """A = R - b, where b is the running mean of what this role was paid in this environment."""

    Config = RaeConfig
    config: RaeConfig
    min_samples: ClassVar[int] = 1
    min_members: ClassVar[int] = 1

    def __init__(
        self,
        config: RaeConfig | None = None,
        reward: RewardConfig | None = None,
        policies: frozenset[str] | None = None,
    ) -> None:
        super().__init__(config, reward, policies)
        self._baselines: dict[str, float] = {}

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.group_plays(episodes, lambda episode, role: (episode.env, role))

    def advantages(self, group: Group) -> list[float]:
        baseline = self._baselines.get(_name(group), 0.0)
        return [reward - baseline for reward in reward_list(group)]

    def update(self, groups: Sequence[Group]) -> None:
        for group in groups:
            kept = self.config.decay ** len(group.members)
            before = self._baselines.get(_name(group), 0.0)
            self._baselines[_name(group)] = kept * before + (1 - kept) * mean(reward_list(group))

    def state(self) -> dict[str, float]:
        return dict(self._baselines)

    def load_state(self, state: Mapping[str, float]) -> None:
        self._baselines = dict(state)


def _name(group: Group) -> str:
    return "/".join(map(str, group.key))
