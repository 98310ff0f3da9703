"""Rollouts: playing tasks into episodes, over one sampler protocol, on one event loop."""

from pettingllms.seats import Seat
from pettingllms.rollout.worker import Worker

__all__ = ["Seat", "Worker"]
