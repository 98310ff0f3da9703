"""Sokoban, `sokoban-v1`."""

from pettingllms.envs.puzzles.sokoban.env import Sokoban, SokobanConfig

__all__ = ["Sokoban", "SokobanConfig"]
