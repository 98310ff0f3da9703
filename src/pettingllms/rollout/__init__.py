"""Rollouts: playing tasks into episodes, over one sampler protocol, on one event loop."""

from pettingllms.rollout.worker import Worker, in_order
from pettingllms.seats import Seat

__all__ = ["Seat", "Worker", "in_order"]
