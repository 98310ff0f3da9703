"""Rollouts: playing tasks into episodes, over one sampler protocol, on one event loop."""

from pettingllms.rollouts.player import Player
from pettingllms.rollouts.worker import Worker, in_order

__all__ = ["Player", "Worker", "in_order"]
