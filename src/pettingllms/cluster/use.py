"""How busy the processes of a team are."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pettingllms.cluster.engines import Engines
from pettingllms.cluster.learners import Learners
from pettingllms.runtime.busy_clock import Use


@dataclass(frozen=True, slots=True)
class TeamUse:
    """The use of each process since it started, by its name."""

    engines: dict[str, Use]
    """Each replica of each model."""
    learners: dict[str, Use]
    """The learner of each model, and each critic that is a separate model."""


async def team_use(engines: Mapping[str, Engines], learners: Mapping[str, Learners]) -> TeamUse:
    """How busy the engines and learners of some models are."""
    found = await asyncio.gather(*(one.use() for one in engines.values()))
    replicas = {
        f"{model} {at}": use
        for model, some in zip(engines, found, strict=True)
        for at, use in enumerate(some)
    }
    return TeamUse(replicas, {name: one.clock.use() for name, one in learners.items()})
