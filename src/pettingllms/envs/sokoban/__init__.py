"""Sokoban, `sokoban-v1`."""

from pettingllms.envs.sokoban.env import Sokoban, SokobanConfig

__all__ = ["Sokoban", "SokobanConfig"]
