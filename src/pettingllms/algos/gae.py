"""Generalised advantage estimation, over plain numbers (Schulman et al., 2015)."""

from collections.abc import Sequence


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    gamma: float,
    gae_lambda: float,
    last_value: float = 0.0,
) -> list[float]:
    """How much better than expected it went from each of a chain of states on.

    `values` are what was expected in each state, `rewards` what was earned on leaving it. After the
    last state `last_value` is expected, which is 0 if the chain reached its end. With
    gae_lambda = 1 this is the return less the value, with 0 the error of one step; what lies
    between trades the noise of returns for the error of values.
    """
    advantages: list[float] = []
    ahead, value_after = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        surprise = reward + gamma * value_after - value
        ahead = surprise + gamma * gae_lambda * ahead
        value_after = value
        advantages.append(ahead)
    return advantages[::-1]


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The return from each of a chain of states on."""
    return gae(rewards, [0.0] * len(rewards), gamma, 1.0)
