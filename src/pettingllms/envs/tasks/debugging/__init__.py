"""Planting and repairing bugs, `debugging-v1`."""

from pettingllms.envs.tasks.debugging.env import Debugging, DebuggingConfig

__all__ = ["Debugging", "DebuggingConfig"]
