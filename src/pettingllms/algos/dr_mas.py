"""Dr. MAS: GRPO with a mean and a deviation for each role (Feng et al., 2026).

Roles of one team are paid on different scales: a searcher's rewards need not look like an
answerer's. Under one shared baseline the role that is paid less is pushed down whatever it does,
and gradients spike. Comparing each role with itself alone calibrates every role's gradient.
"""

from collections.abc import Sequence

from pettingllms.algos.base import problem
from pettingllms.algos.grpo import Grpo
from pettingllms.types import Episode, Group


class DrMas(Grpo):
    """A = (R - mean) / deviation over the plays of one role in the task."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.group_plays(episodes, lambda episode, role: (*problem(episode), role))
