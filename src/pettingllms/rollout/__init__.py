"""Rollouts: playing tasks into episodes, over one sampler protocol, on one event loop."""

from pettingllms.rollout.player import Player
from pettingllms.rollout.worker import Worker, in_order

__all__ = ["Player", "Worker", "in_order"]
