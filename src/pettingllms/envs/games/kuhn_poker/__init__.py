"""Kuhn poker, `kuhn_poker-v1`."""

from pettingllms.envs.games.kuhn_poker.env import KuhnPoker

__all__ = ["KuhnPoker"]
