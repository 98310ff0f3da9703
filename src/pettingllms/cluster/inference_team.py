"""A team without learners: engines with the weights of a checkpoint."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pettingllms.cluster.checks import check_models_exist
from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig
from pettingllms.policies.files import Saved

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


@asynccontextmanager
async def inference_team(
    config: RunConfig, weights: Saved, notify: Callable[[str], None]
) -> AsyncIterator["Team"]:
    """A team without learners, until the block ends; without `weights`, models are untrained."""
    check_models_exist(config, learning=False)
    with ray_running(config.cluster):
        from pettingllms.cluster.team import Team

        team = await Team.start(config, notify, learning=False)
        try:
            if weights:
                await team.load_engines(weights)
            yield team
        finally:
            await team.stop()
