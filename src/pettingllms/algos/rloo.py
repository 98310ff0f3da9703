"""RLOO: compare an episode with the mean of the *other* episodes (Ahmadian et al., 2024).

A baseline that contains the reward itself biases the gradient; a leave-one-out baseline does not.
Other roles of the same episode are left out too, because their returns depend on this role's
replies. Groups therefore contain one role each.
"""

from pettingllms.algos.base import reward_list
from pettingllms.algos.credit import leave_one_out
from pettingllms.algos.dr_mas import DrMas
from pettingllms.types import Group


class Rloo(DrMas):
    """A = R - mean over the other episodes of the task, per role."""

    def advantages(self, group: Group) -> list[float]:
        return leave_one_out(reward_list(group))
