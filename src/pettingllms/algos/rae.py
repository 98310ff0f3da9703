"""RAE: role-conditioned advantage estimation with a running baseline per role (Liu et al., 2025).

In self-play one policy plays all roles, and roles are not symmetric: the first mover wins more
often. A slowly moving baseline per environment and role removes the advantage of the role from that
of the reply, and needs one episode per task instead of several. The baselines are saved in
checkpoints. A batch is compared with the baseline from before it and then updates it as a whole, so
that the order of episodes does not matter.
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
    """Decay of the running baseline per episode."""


class Rae(Algorithm):
    """A = R - b, where b is the running mean of the role's return in this environment."""

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
        return self.group_episodes(episodes, lambda episode, role: (episode.env, role))

    def advantages(self, group: Group) -> list[float]:
        baseline = self._baselines.get(_key(group), 0.0)
        return [reward - baseline for reward in reward_list(group)]

    def update(self, groups: Sequence[Group]) -> None:
        for group in groups:
            kept = self.config.decay ** len(group.members)
            before = self._baselines.get(_key(group), 0.0)
            self._baselines[_key(group)] = kept * before + (1 - kept) * mean(reward_list(group))

    def state(self) -> dict[str, float]:
        return dict(self._baselines)

    def load_state(self, state: Mapping[str, float]) -> None:
        self._baselines = dict(state)


def _key(group: Group) -> str:
    return "/".join(map(str, group.key))
