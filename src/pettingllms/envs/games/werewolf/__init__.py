"""Werewolf, `werewolf-v1`."""

from pettingllms.envs.games.werewolf.env import Werewolf, WerewolfConfig

__all__ = ["Werewolf", "WerewolfConfig"]
