"""Leduc poker, `leduc_poker-v1`."""

from pettingllms.envs.leduc_poker.env import LeducPoker

__all__ = ["LeducPoker"]
