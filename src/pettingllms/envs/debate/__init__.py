"""Debate, `debate-v1`."""

from pettingllms.envs.debate.env import Debate, DebateConfig

__all__ = ["Debate", "DebateConfig"]
