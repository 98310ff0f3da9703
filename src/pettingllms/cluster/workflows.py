"""The programs of a workflow, and the gateway through which they call policies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pettingllms.config import RolloutConfig
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.programs import ProgramRollout, ProgramThread
from pettingllms.rollouts import Player


@dataclass(frozen=True, slots=True)
class Programs:
    """A running gateway, and the thread that runs programs."""

    gateway: Gateway
    thread: ProgramThread

    @classmethod
    async def start(
        cls, players: Mapping[str, Player], notify: Callable[[str], None]
    ) -> "Programs":
        """Start the gateway, and check that the players' chat templates support programs."""
        thread = ProgramThread()
        thread.start()
        programs = cls(await Gateway.start(notify), thread)
        programs.gateway.check(players)
        return programs

    def play(self, rollout: RolloutConfig) -> ProgramRollout:
        """The runner of workflow episodes."""
        return ProgramRollout(self.gateway, self.thread, rollout)

    async def stop(self) -> None:
        """Stop the gateway and all programs."""
        await self.gateway.stop()
        self.thread.stop()
