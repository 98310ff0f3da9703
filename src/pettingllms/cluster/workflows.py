"""The programs of a workflow, and the gateway through which they call the policies of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pettingllms.config import RolloutConfig
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.programs import Play, Stage
from pettingllms.rollout import Player


@dataclass(frozen=True, slots=True)
class Programs:
    """A gateway that listens, and the stage on which programs run."""

    gateway: Gateway
    stage: Stage

    @classmethod
    async def start(
        cls, players: Mapping[str, Player], notify: Callable[[str], None]
    ) -> "Programs":
        """Listen, once it is known that the players' templates suit programs."""
        stage = Stage()
        stage.start()
        programs = cls(await Gateway.start(notify), stage)
        programs.gateway.check(players)
        return programs

    def play(self, rollout: RolloutConfig) -> Play:
        """How an episode of a workflow is played."""
        return Play(self.gateway, self.stage, rollout)

    async def stop(self) -> None:
        """Listen no more, and end what runs."""
        await self.gateway.stop()
        self.stage.stop()
