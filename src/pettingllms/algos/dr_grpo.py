"""Dr. GRPO: GRPO without the division by the deviation (Liu et al., 2025).

Dividing by a group's deviation weighs easy and hard tasks up: the less the rewards of a task
differ, the louder its gradient. Leaving the division out removes that bias. The other half of the
paper, no division by a reply's length, belongs to the loss.
"""

from pettingllms.algos.base import reward_list
from pettingllms.algos.credit import centered
from pettingllms.algos.grpo import Grpo
from pettingllms.types import Group


class DrGrpo(Grpo):
    """A = R - mean over all plays of the task."""

    def advantages(self, group: Group) -> list[float]:
        return centered(reward_list(group))
