"""RLOO: a play is compared with the mean of the *other* plays (Ahmadian et al., 2024).

A baseline that contains the reward itself biases the gradient; leaving it out does not. The other
roles of the same play are left out for the same reason: what they were paid depends on this
role's replies, so groups hold one role each.
"""

from pettingllms.algos.base import reward_list
from pettingllms.algos.credit import leave_one_out
from pettingllms.algos.dr_mas import DrMas
from pettingllms.types import Group


class Rloo(DrMas):
    """A = R - mean of the other plays of the role in the task."""

    def advantages(self, group: Group) -> list[float]:
        return leave_one_out(reward_list(group))
