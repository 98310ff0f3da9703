"""Rewards of an environment's rule-based judge: named parts from 0 to 1, and one total."""

from collections.abc import Mapping

from pettingllms.errors import nearest
from pettingllms.types import Failed, Reward, Scored


def rule_reward(parts: Mapping[str, float], part: str, whole: float) -> Reward:
    """The reward of one part, or the total if no part is named."""
    if part and part not in parts:
        return Failed(f"the rule has no part '{part}'; {nearest(part, parts)}", "judge")
    return Scored(parts[part] if part else whole)
