"""Debate, `debate-v1`."""

from pettingllms.envs.tasks.debate.env import Debate, DebateConfig

__all__ = ["Debate", "DebateConfig"]
