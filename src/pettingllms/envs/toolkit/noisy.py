"""A player that is good now and then.

Whoever learns from it sees what good play is and plays badly: a start that reinforcement learning
can make something of. The best player would leave it nothing to do, a random one nothing to build
on.
"""

import random
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer


def noisy(strong: ScriptedPlayer, weak: ScriptedPlayer, share: float = 0.5) -> ScriptedPlayer:
    """A player that plays as the first of two in this share of its replies, by chance."""
    return partial(_play, strong, weak, share)


def _play(
    strong: ScriptedPlayer,
    weak: ScriptedPlayer,
    share: float,
    env: Any,
    state: Any,
    role: str,
    rng: random.Random,
) -> str:
    return (strong if rng.random() < share else weak)(env, state, role, rng)
