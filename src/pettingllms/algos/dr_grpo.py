"""Dr. GRPO: GRPO without division by the standard deviation (Liu et al., 2025).

Dividing by the standard deviation of a group overweights easy and hard tasks: the less the rewards
of a task vary, the larger its gradient. Omitting the division removes this bias. The other half of
the paper, no division by the length of a reply, belongs to the loss.
"""

from pettingllms.algos.base import reward_list
from pettingllms.algos.credit import centered
from pettingllms.algos.grpo import Grpo
from pettingllms.types import Group


class DrGrpo(Grpo):
    """A = R - mean over all episodes of the task."""

    def advantages(self, group: Group) -> list[float]:
        return centered(reward_list(group))
