"""Influence shaping: how an answer is rewarded for what it does to later answers of all roles."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from pettingllms.config.section import Section
from pettingllms.registry import ALGORITHMS


class InfluenceConfig(Section):
    """Influence shaping of process rewards (MAPoRL). With `alpha = 0` and `gamma = 0`, rewards stay
    as they are."""

    gamma: float = Field(default=0.3, ge=0, le=1)
    """Discount of the mean score of all roles in later rounds; 0 to ignore later rounds."""
    right_at: float = 0.5
    """Minimum score of a correct answer."""
    alpha: float = Field(default=1.0, ge=0)
    """Scale of all bonuses and penalties below; 0: none of them."""
    follow_right: float = Field(default=0.1, ge=0)
    """Bonus for switching to a majority that was right in the previous round."""
    follow_wrong: float = Field(default=0.1, ge=0)
    """Penalty for leaving a right answer for a majority that was wrong in the previous round."""
    against_majority: float = Field(default=0.0, ge=0)
    """Bonus for becoming right although the majority of the previous round was wrong, and penalty
    for becoming wrong although it was right."""
    lead_right: float = Field(default=0.1, ge=0)
    """Bonus for a right answer, times the share of other roles that switch from wrong to right
    next."""
    lead_wrong: float = Field(default=0.1, ge=0)
    """Penalty for a wrong answer, times the share of other roles that switch from right to wrong
    next."""
    lead_opposite: float = Field(default=0.0, ge=0)
    """Bonus for a wrong answer, times the share of other roles that switch from wrong to right
    next; and penalty for a right answer, times the share that switch from right to wrong."""

    def unused_keys(self) -> set[str]:
        """A scale of 1."""
        return {"alpha"}


def influence_problems(algo_type: str, reward: Any) -> Iterator[str]:
    """Why `[reward.influence]` would have no effect, or a second one."""
    if reward.influence is None:
        return
    algorithm = ALGORITHMS.load(algo_type)
    if issubclass(algorithm.Config, InfluenceConfig):
        yield (
            f"reward.influence: '{algo_type}' has the same options under [algo]; set them there, "
            'or set algo.type = "grpo"'
        )
    if algorithm.team_only:
        yield (
            f"reward.influence: '{algo_type}' uses only team rewards, and influence shaping "
            "changes process rewards; remove the section"
        )
    if not reward.process:
        yield "reward.influence: changes process rewards, and reward.process is 0; set it above 0"
