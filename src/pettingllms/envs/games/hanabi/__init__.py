"""Hanabi, `hanabi-v1`."""

from pettingllms.envs.games.hanabi.env import Hanabi, HanabiConfig

__all__ = ["Hanabi", "HanabiConfig"]
