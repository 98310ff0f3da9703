"""Who learns in which step: a pure function of the configuration.

Two schemes are answers to this one question. A policy that joins late faces a partner that already
knows something. Policies that alternate answer each other: while one learns, the rest of its world
stands still, which simultaneous learning never grants (iterated best response; Lanctot et al.,
2017). Who does not learn in a step plays in it with the weights it has.
"""

from collections.abc import Iterator, Mapping

from pettingllms.config.policies import FullPolicy, LoraPolicy, PolicyConfig
from pettingllms.config.training import TrainConfig
from pettingllms.errors import nearest

Policies = Mapping[str, PolicyConfig]


def learning(policies: Policies, train: TrainConfig, step: int) -> frozenset[str]:
    """Names of the policies that learn in a step; the first step is 1."""
    joined = frozenset(name for name, first in _join_steps(policies).items() if first <= step)
    return joined & {_turn_of(train, step)} if train.alternate else joined


def schedule_problems(policies: Policies, train: TrainConfig) -> Iterator[str]:
    """Names that cannot alternate, policies that never would, and steps in which nobody learns."""
    joins = _join_steps(policies)
    wrong = [name for name in train.alternate if name not in joins]
    for name in wrong:
        yield f"train.alternate: no policy that learns is called '{name}'; {nearest(name, joins)}"
    if wrong:
        return
    left_out = [name for name in joins if train.alternate and name not in train.alternate]
    if left_out:
        yield (
            f"train.alternate: {', '.join(left_out)} would never learn; name every policy that is "
            "full or lora, or make it frozen"
        )
    if joins:
        yield from _idle_steps(policies, train, joins)


def _idle_steps(policies: Policies, train: TrainConfig, joins: Mapping[str, int]) -> Iterator[str]:
    """The first step in which nobody learns; once all have joined, turns only repeat."""
    last = max(joins.values()) + train.alternate_every * len(train.alternate)
    steps = range(1, min(train.num_steps, last) + 1)
    idle = next((step for step in steps if not learning(policies, train, step)), None)
    if idle is None:
        return
    if train.alternate:
        name = _turn_of(train, idle)
        yield (
            f"policies.{name}.join_step: is {joins[name]}, but by train.alternate '{name}' alone "
            f"would learn in step {idle}; lower it, or let another policy come first"
        )
    else:
        first = min(joins, key=lambda name: joins[name])
        yield (
            f"policies.{first}.join_step: is {joins[first]}, and nobody joins before, so nobody "
            f"would learn in step {idle}; let one policy join in step 1"
        )


def _join_steps(policies: Policies) -> dict[str, int]:
    return {
        name: policy.join_step
        for name, policy in policies.items()
        if isinstance(policy, FullPolicy | LoraPolicy)
    }


def _turn_of(train: TrainConfig, step: int) -> str:
    """Whose turn it is in a step."""
    return train.alternate[(step - 1) // train.alternate_every % len(train.alternate)]
