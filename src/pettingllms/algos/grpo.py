"""GRPO: a play is compared with the other plays of its task (Shao et al., 2024).

Sampling the same problem several times gives a baseline for free: no critic is needed. The group
is the task and nothing smaller. With one role this is the published algorithm; with several, all
roles' parts share one mean and one deviation, which is what "GRPO on a team" means in the
literature and what `dr_mas` and `at_grpo` improve on. Every turn of a role in a play gets the
same advantage.
"""

from collections.abc import Sequence

from pettingllms.algos.base import Algorithm, problem, reward_list
from pettingllms.algos.credit import standardized
from pettingllms.types import Episode, Group


class Grpo(Algorithm):
    """A = (R - mean) / deviation over all plays of the task, whatever the role."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.group_plays(episodes, lambda episode, _: problem(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))
