"""Tic-tac-toe, `tic_tac_toe-v1`."""

from pettingllms.envs.games.tic_tac_toe.env import TicTacToe, TicTacToeConfig

__all__ = ["TicTacToe", "TicTacToeConfig"]
