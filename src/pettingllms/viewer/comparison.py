"""The comparison group of each turn, recomputed by the algorithm from recorded episodes."""

from collections.abc import Sequence
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RunConfig
from pettingllms.types import Episode, Group

MAX_MEMBERS = 24
"""Members that the page shows per group."""
Place = tuple[str, int]
"""An episode's id and the index of one of its turns."""


def groups_of(
    episodes: Sequence[Episode], config: RunConfig, step: int
) -> dict[Place, dict[str, Any]]:
    """The group of every compared turn, with the members' rewards and advantages."""
    algorithm = make_algorithm_for(config)
    if step:
        algorithm.policies = config.learning(step)
    places = {
        id(turn): (episode.id, number)
        for episode in episodes
        for number, turn in enumerate(episode.turns)
    }
    group_by_place: dict[Place, dict[str, Any]] = {}
    for group in algorithm.groups(episodes):
        data = _group_data(group, places)
        for member in group.members:
            group_by_place |= {places[id(turn)]: data for turn in member.turns}
    return group_by_place


def _group_data(group: Group, places: dict[int, Place]) -> dict[str, Any]:
    rewards = [member.reward for member in group.members]
    return {
        "size": len(rewards),
        "mean": sum(rewards) / len(rewards),
        "low": min(rewards),
        "high": max(rewards),
        "members": [
            {
                "reward": member.reward,
                "advantage": next((turn.credit.advantage for turn in member.turns), None),
                "turns": [places[id(turn)] for turn in member.turns],
                "text": next((turn.text[:80] for turn in member.turns), ""),
            }
            for member in group.members[:MAX_MEMBERS]
        ],
    }
