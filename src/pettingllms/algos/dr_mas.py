"""Dr. MAS: GRPO with a mean and a standard deviation per role (Feng et al., 2026).

Rewards of different roles of a team have different scales. Under a shared baseline a role with
lower rewards gets negative advantages whatever it does, and gradients spike. Comparing each role
only with itself calibrates the gradient of every role.
"""

from collections.abc import Sequence

from pettingllms.algos.base import task_key
from pettingllms.algos.grpo import Grpo
from pettingllms.types import Episode, Group


class DrMas(Grpo):
    """A = (R - mean) / std over the episodes of the task, per role."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.group_episodes(episodes, lambda episode, role: (*task_key(episode), role))
