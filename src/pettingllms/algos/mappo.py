"""MAPPO: PPO with one critic that sees what all roles see (Yu et al., 2022).

A role's own prompt hides what decides how the play goes on: the other roles' cards, orders, plans.
The critic is asked in training only, so it may look at everything, and what luck in the hidden part
did is no longer credited to the reply. Policies still see what they saw.
"""

from typing import ClassVar

from pettingllms.algos.base import Need
from pettingllms.algos.ppo import Ppo


class Mappo(Ppo):
    """A = generalised advantage estimate, with the values of one critic that sees every role."""

    needs: ClassVar[frozenset[Need]] = frozenset({"values", "central"})
