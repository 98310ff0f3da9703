"""The program with nothing to learn from: every advantage that credit gives is made 0."""

from typing import Any

from pettingllms.algos.actor_critic import ActorCritic
from pettingllms.algos.base import Algorithm
from pettingllms.cli.main import main


def _zeroed(assign: Any) -> Any:
    def assign_nothing(self: Any, episodes: Any) -> Any:
        groups = assign(self, episodes)
        for turn in (turn for episode in episodes for turn in episode.turns):
            turn.credit.advantage = None if turn.credit.advantage is None else 0.0
            if turn.credit.advantages is not None:
                turn.credit.advantages = 0 * turn.credit.advantages
        return groups

    return assign_nothing


for kind in (Algorithm, ActorCritic):
    kind.assign = _zeroed(kind.assign)  # type: ignore[method-assign]
main()
