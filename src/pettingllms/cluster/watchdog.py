"""The watchdog of a learner: it waits for all ranks, and reports those that hang or fail.

A rank that hangs cannot answer, so the watchdog asks its node when it last made progress. A long
step makes progress with every pass; a learner fails only without any.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError

from pettingllms.cluster.failures import DEATHS, explained
from pettingllms.cluster.nodes import ActorPlace, Health, dump_stack, health, log_of, on_node
from pettingllms.errors import LearnerLostError, StateLostError

BOUND = 1800.0
MAX_CHECK_SECONDS = 30.0
ASK_SECONDS = 10.0
GRACE_SECONDS = 5.0
"""After one rank failed, time for the others: a rank that died is the cause of their errors."""
NO_ANSWER = "its node does not answer"


class Watchdog:
    """Waits for the answers of the ranks of one learner."""

    def __init__(self, policies: Iterable[str], bound: float = BOUND) -> None:
        names = ", ".join(f"'{name}'" for name in policies)
        self.name = f"the learner of {names}" if names else "a critic"
        self.bound = bound
        """Seconds without progress after which the ranks count as lost."""
        self.notify: Callable[[str], None] = lambda _: None
        self.places: Sequence[ActorPlace] = ()
        """Where the ranks run; empty until they have started."""
        self.has_lost_rank = False
        """Whether a rank died or hangs."""

    async def answers(
        self, asked: Sequence[Awaitable[Any]], what: str, bound: float | None = None
    ) -> list[Any]:
        """The answers of all ranks, in order. `bound` replaces that of the run."""
        if not asked:  # they were stopped, such as by a recovery while a save asks in between
            raise LearnerLostError(f"{self.name} was stopped before it answered '{what}'")
        futures = [asyncio.ensure_future(one) for one in asked]
        bound = self.bound if bound is None else bound
        check = min(MAX_CHECK_SECONDS, bound / 12)
        progress, report = [time.monotonic() for _ in futures], bound / 6
        try:
            while True:
                done, waiting = await asyncio.wait(
                    futures, timeout=check, return_when=asyncio.FIRST_EXCEPTION
                )
                if any(one.exception() for one in done):
                    raise await self._failure(futures, what)
                if not waiting:
                    return [one.result() for one in futures]
                report = await self._check(futures, what, progress, report, bound)
        finally:
            for one in futures:
                one.cancel()

    async def _check(
        self,
        futures: Sequence[asyncio.Future[Any]],
        what: str,
        progress: list[float],
        report: float,
        bound: float,
    ) -> float:
        """Report ranks without progress; the seconds after which to report the next time.
        `progress`: when each rank was last known to make progress."""
        waiting = [rank for rank, one in enumerate(futures) if not one.done()]
        if time.monotonic() - max(progress[rank] for rank in waiting) < report:
            return report
        ranks = waiting if self.places else []
        found = await asyncio.gather(*(self._health(self.places[rank]) for rank in ranks))
        for rank, one in zip(ranks, found, strict=True):
            progress[rank] = max(progress[rank], time.monotonic() - one.quiet)
        quiet = time.monotonic() - max(progress[rank] for rank in waiting)
        if quiet < report:
            return report
        told = "; ".join(map(self._told, ranks, found)) or "its processes have not started"
        if quiet < bound:
            self.notify(f"{self.name} has not answered '{what}' for {quiet:.0f} s: {told}")
            return min(2 * report, bound)
        logs = await asyncio.gather(*(self._last_lines(self.places[rank]) for rank in ranks))
        self.has_lost_rank = True
        raise LearnerLostError(
            f"{self.name} made no progress in '{what}' for {quiet:.0f} s (cluster.learner_timeout "
            f"= {bound:g}): {told}{''.join(logs)}"
        )

    def _told(self, rank: int, found: Health) -> str:
        return f"rank {rank}, {self.places[rank]}{found.state and f', {found.state}'}"

    async def _health(self, place: ActorPlace) -> Health:
        with suppress(TimeoutError, RayError):
            return await asyncio.wait_for(on_node(place.node, health, place), ASK_SECONDS)
        return Health(float("inf"), NO_ANSWER)

    async def _last_lines(self, place: ActorPlace) -> str:
        """The stacks of a process that hangs, from its log."""
        if place.log is None:
            return ""
        with suppress(TimeoutError, RayError, OSError):
            async with asyncio.timeout(ASK_SECONDS):
                await on_node(place.node, dump_stack, place.pid)
                await asyncio.sleep(1)
                lines = await on_node(place.node, log_of, place.pid)
                return "".join(f"\n    {line}" for line in lines)
        return ""

    async def _failure(self, futures: Sequence[asyncio.Future[Any]], what: str) -> BaseException:
        """The error of the rank that failed first in the chain of causes."""
        await asyncio.wait(futures, timeout=GRACE_SECONDS)
        failed = [
            (rank, error)
            for rank, one in enumerate(futures)
            if one.done() and not one.cancelled() and (error := one.exception())
        ]
        rank, error = next((f for f in failed if isinstance(f[1], DEATHS)), failed[0])
        if not isinstance(error, RayError):
            return error
        place = self.places[rank] if self.places else None
        found: Exception = await explained(
            error, f"rank {rank} of {self.name}, in '{what}',", place
        )
        if isinstance(error, DEATHS):
            found = LearnerLostError(str(found))
        if isinstance(found, StateLostError):  # other ranks may wait for this one
            self.has_lost_rank = True
        found.__cause__ = error
        return found
