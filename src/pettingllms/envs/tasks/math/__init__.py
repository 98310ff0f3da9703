"""Math problems, `math-v1`."""

from pettingllms.envs.tasks.math.env import Math, MathConfig

__all__ = ["Math", "MathConfig"]
