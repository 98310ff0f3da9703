"""Rollouts: playing tasks into episodes, over one sampler protocol, on one event loop."""

from pettingllms.rollout.player import Seat
from pettingllms.rollout.worker import Worker, in_order

__all__ = ["Seat", "Worker", "in_order"]
