"""A role that proposes tasks, `propose-v1`."""

from pettingllms.envs.tasks.propose.env import Propose, ProposeConfig

__all__ = ["Propose", "ProposeConfig"]
