"""Teams that a designer proposes, `team_design-v1`."""

from pettingllms.envs.tasks.team_design.env import TeamDesign, TeamDesignConfig
from pettingllms.envs.tasks.team_design.graph import Executor, Limits, TeamGraph, parse_graph

__all__ = ["Executor", "Limits", "TeamDesign", "TeamDesignConfig", "TeamGraph", "parse_graph"]
