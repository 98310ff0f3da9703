"""MAPPO: PPO with one centralized critic (Yu et al., 2022).

The observation of one role hides what the return depends on: cards, orders or plans of other roles.
The critic is used only in training, so it may read the observations of all roles. Luck in the
hidden part is then no longer credited to the reply. Policies keep their own observations.
"""

from typing import ClassVar

from pettingllms.algos.base import Need
from pettingllms.algos.ppo import Ppo


class Mappo(Ppo):
    """A = generalized advantage estimate (GAE) with the values of one centralized critic."""

    needs: ClassVar[frozenset[Need]] = frozenset({"values", "centralized"})
