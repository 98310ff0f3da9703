"""Generalized advantage estimation (GAE), over plain numbers (Schulman et al., 2015)."""

from collections.abc import Sequence


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    gamma: float,
    gae_lambda: float,
    last_value: float = 0.0,
) -> list[float]:
    """The advantage of each state of a trajectory.

    `values` are the critic's values of the states, `rewards` the rewards on leaving them, and
    `last_value` is the value after the last state: 0 if the trajectory ended there. gae_lambda = 1
    gives the return minus the value, 0 gives the one-step TD error. Values in between trade the
    variance of returns for the bias of the critic.
    """
    advantages: list[float] = []
    ahead, value_after = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        td_error = reward + gamma * value_after - value
        ahead = td_error + gamma * gae_lambda * ahead
        value_after = value
        advantages.append(ahead)
    return advantages[::-1]


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return from each state of a trajectory."""
    return gae(rewards, [0.0] * len(rewards), gamma, 1.0)
