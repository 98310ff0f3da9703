"""Which turns a turn was compared with: asked of the algorithm that did it, from the record."""

from collections.abc import Sequence
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RunConfig
from pettingllms.types import Episode, Group

MAX_MEMBERS = 24
"""Members of a group that the page shows."""
Place = tuple[str, int]
"""An episode's id, and the number of one of its turns."""


def groups_of(
    episodes: Sequence[Episode], config: RunConfig, step: int
) -> dict[Place, dict[str, Any]]:
    """For every turn that was compared: the group, with what its members were paid."""
    algorithm = make_algorithm_for(config)
    if step:
        algorithm.policies = config.learning(step)
    places = {
        id(turn): (episode.id, number)
        for episode in episodes
        for number, turn in enumerate(episode.turns)
    }
    found: dict[Place, dict[str, Any]] = {}
    for group in algorithm.groups(episodes):
        shown = _shown(group, places)
        for member in group.members:
            found |= {places[id(turn)]: shown for turn in member.turns}
    return found


def _shown(group: Group, places: dict[int, Place]) -> dict[str, Any]:
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
