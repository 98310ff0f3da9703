"""The composition root: which components a configuration asks for."""

from functools import partial
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.envs import make_env_at
from pettingllms.league import make_co_players, make_league
from pettingllms.training.collapse import CollapseGuard
from pettingllms.training.component import Component
from pettingllms.training.curriculum import CurriculumSchedule
from pettingllms.training.judging import JudgeRewards
from pettingllms.training.matchmaking import CoPlayerSchedule, LeagueMatchmaking, RoleRotation
from pettingllms.training.periodic_eval import (
    AnchorEvaluation,
    ExploitabilityEvaluation,
    PeriodicEvaluation,
)


def make_components(config: RunConfig, run: Path) -> list[Component]:
    """The components of a run, in the order in which their hooks are called."""
    c, every, guard = config, config.train.eval_every, config.active_guard
    judge = JudgeRewards() if c.judge else None
    components: list[Component | None] = [
        judge,
        RoleRotation(c.roles) if c.rollout.rotate_roles else None,
        LeagueMatchmaking(make_league(c.league, c.roles, c.seed), c.reward) if c.league else None,
        PeriodicEvaluation(every, judge, beside=c.rollout.max_staleness > 0) if every else None,
        AnchorEvaluation(every, judge, guard.anchors) if every and guard.anchors else None,
        CoPlayerSchedule(
            make_co_players(c.co_players, c.roles, c.policies, c.seed), c.reward, every, judge
        )
        if c.co_players
        else None,
        ExploitabilityEvaluation(every, c) if every and c.eval.exploitability else None,
        CurriculumSchedule(c.curriculum, c.roles, partial(make_env_at, c))
        if c.curriculum
        else None,
        CollapseGuard(guard, c.roles, run) if guard.action != "off" else None,
    ]
    return [component for component in components if component is not None]
