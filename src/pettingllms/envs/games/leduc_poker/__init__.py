"""Leduc poker, `leduc_poker-v1`."""

from pettingllms.envs.games.leduc_poker.env import LeducPoker

__all__ = ["LeducPoker"]
