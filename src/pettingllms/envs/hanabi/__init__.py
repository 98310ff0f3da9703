"""Hanabi, `hanabi-v1`."""

from pettingllms.envs.hanabi.env import Hanabi, HanabiConfig

__all__ = ["Hanabi", "HanabiConfig"]
