"""The programs of a workflow, and the gateways through which they call policies.

Each process that plays has a gateway and runs its own programs, so the calls of an episode reach
the gateway that records it. With `rollout.gateway_address`, a router gives all of them one address.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pettingllms.config import RolloutConfig, RunConfig
from pettingllms.envs import Environment, Workflow
from pettingllms.errors import ConfigError
from pettingllms.gateway.gateway import LOOPBACK, Gateway
from pettingllms.gateway.programs import ProgramRollout, ProgramThread
from pettingllms.gateway.router import Router
from pettingllms.rollouts import Player

DRIVER_TAG = "driver"


@dataclass(frozen=True, slots=True)
class Programs:
    """A running gateway, and the thread that runs programs."""

    gateway: Gateway
    thread: ProgramThread

    @classmethod
    async def start(
        cls,
        players: Mapping[str, Player],
        notify: Callable[[str], None],
        tag: str,
        shared_url: str = "",
        host: str = LOOPBACK,
    ) -> "Programs":
        """Start the gateway, and check that the players' chat templates support programs. `tag` and
        `shared_url` are for a gateway behind a router."""
        thread = ProgramThread()
        thread.start()
        gateway = await Gateway.start(notify, host=host, tag=tag, shared_url=shared_url)
        programs = cls(gateway, thread)
        programs.gateway.check(players)
        return programs

    def play(self, rollout: RolloutConfig) -> ProgramRollout:
        """The runner of workflow episodes."""
        return ProgramRollout(self.gateway, self.thread, rollout)

    async def stop(self) -> None:
        """Stop the gateway and all programs."""
        await self.gateway.stop()
        self.thread.stop()


async def driver_programs(
    players: Mapping[str, Player], notify: Callable[[str], None], router: Router | None
) -> Programs:
    """Start the programs of a workflow that the driver plays."""
    url = router.url if router is not None else ""
    programs = await Programs.start(players, notify, DRIVER_TAG, url)
    if router is not None:
        router.add(DRIVER_TAG, programs.gateway.url)
    return programs


def start_router(config: RunConfig, env: Environment[Any, Any]) -> Router | None:
    """The router of a run, if its programs call one address."""
    address = config.rollout.gateway_address
    if not address or not isinstance(env, Workflow):
        return None
    host, _, port = address.rpartition(":")
    router = Router()
    try:
        router.start(host, int(port))
    except OSError as error:
        what = f"rollout.gateway_address: cannot listen on {address} ({error.strerror or error})"
        raise ConfigError("rollout", [f"{what}; give a free port, or port 0"]) from None
    return router


@contextmanager
def stopped_on_error(router: Router | None) -> Iterator[None]:
    """Stop a router if the start of its run fails, so that its port is free again."""
    with ExitStack() as stack:
        if router is not None:
            stack.callback(router.stop)
        yield
        stack.pop_all()
