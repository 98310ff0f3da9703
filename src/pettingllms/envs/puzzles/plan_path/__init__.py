"""Path planning on a grid, `plan_path-v1`."""

from pettingllms.envs.puzzles.plan_path.env import PlanPath, PlanPathConfig

__all__ = ["PlanPath", "PlanPathConfig"]
