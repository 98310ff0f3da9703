"""Which policies learn in which step: a pure function of the configuration.

A policy that joins late starts with partners that are already trained. Alternating policies learn
while the others are frozen, so each faces a stationary environment (iterated best response; Lanctot
et al., 2017). Policies that do not learn in a step act with their current weights.
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
    """Names that cannot alternate, policies that never learn, and steps without a learner."""
    joins = _join_steps(policies)
    wrong = [name for name in train.alternate if name not in joins]
    for name in wrong:
        yield f"train.alternate: no policy that learns is called '{name}'; {nearest(name, joins)}"
    if wrong:
        return
    left_out = [name for name in joins if train.alternate and name not in train.alternate]
    if left_out:
        yield (
            f"train.alternate: {', '.join(left_out)} would never learn; name every full or lora "
            "policy, or make it frozen"
        )
    if joins:
        yield from _idle_steps(policies, train, joins)


def _idle_steps(policies: Policies, train: TrainConfig, joins: Mapping[str, int]) -> Iterator[str]:
    """The first step without a learner; once all have joined, the schedule repeats."""
    last = max(joins.values()) + train.alternate_every * len(train.alternate)
    steps = range(1, min(train.num_steps, last) + 1)
    idle = next((step for step in steps if not learning(policies, train, step)), None)
    if idle is None:
        return
    if train.alternate:
        name = _turn_of(train, idle)
        yield (
            f"policies.{name}.join_step: is {joins[name]}, but train.alternate lets only '{name}' "
            f"learn in step {idle}; lower it, or put another policy first"
        )
    else:
        first = min(joins, key=lambda name: joins[name])
        yield (
            f"policies.{first}.join_step: is {joins[first]}, so no policy would learn in step "
            f"{idle}; let one policy join in step 1"
        )


def _join_steps(policies: Policies) -> dict[str, int]:
    return {
        name: policy.join_step
        for name, policy in policies.items()
        if isinstance(policy, FullPolicy | LoraPolicy)
    }


def _turn_of(train: TrainConfig, step: int) -> str:
    """The policy that learns in a step."""
    return train.alternate[(step - 1) // train.alternate_every % len(train.alternate)]
