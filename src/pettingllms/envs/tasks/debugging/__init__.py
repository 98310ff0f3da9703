"""Bugs planted and mended, `debugging-v1`."""

from pettingllms.envs.tasks.debugging.env import Debugging, DebuggingConfig

__all__ = ["Debugging", "DebuggingConfig"]
