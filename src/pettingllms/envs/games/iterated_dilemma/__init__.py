"""Iterated prisoner's dilemma, `iterated_dilemma-v1`."""

from pettingllms.envs.games.iterated_dilemma.env import IteratedDilemma, IteratedDilemmaConfig

__all__ = ["IteratedDilemma", "IteratedDilemmaConfig"]
