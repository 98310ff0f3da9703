"""Rollouts: sample episodes (trajectories) of tasks with the players of each role.

Linear rollouts sample whole episodes, tree rollouts K sibling replies per decision, and replay
rollouts re-sample from the states of a finished episode.
"""

from pettingllms.rollouts.player import Player
from pettingllms.rollouts.worker import Worker, in_order

__all__ = ["Player", "Worker", "in_order"]
