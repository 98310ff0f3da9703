"""A scripted player that mixes a strong and a weak one.

It is meant for SFT warm starts: a policy trained on its replies knows the format and plays poorly,
which leaves RL room to improve. Imitating the best player leaves nothing to learn; imitating a
random one earns no reward.
"""

import random
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer


def noisy(strong: ScriptedPlayer, weak: ScriptedPlayer, share: float = 0.5) -> ScriptedPlayer:
    """A player that replies as `strong` with probability `share`, otherwise as `weak`."""
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
