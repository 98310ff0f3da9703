"""GRPO: compare an episode with the other episodes of its task (Shao et al., 2024).

Sampling the same task several times provides a baseline without a critic. The group is the task.
With one role this is the published algorithm. With several roles, all of them share one mean and
one standard deviation, which is what "GRPO on a team" means in the literature and what `dr_mas` and
`at_grpo` improve on. All turns of a role in an episode get the same advantage.
"""

from collections.abc import Sequence

from pettingllms.algos.base import Algorithm, reward_list, task_key
from pettingllms.algos.credit import standardized
from pettingllms.types import Episode, Group


class Grpo(Algorithm):
    """A = (R - mean) / std over all episodes of the task and all roles."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.group_episodes(episodes, lambda episode, _: task_key(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))
