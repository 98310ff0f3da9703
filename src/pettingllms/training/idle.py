"""Idle shares: how much of the time engines and learners have nothing to do."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pettingllms.runtime.busy_clock import Use

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team

NOTHING = Use(0.0, 0.0)


class IdleTime:
    """Measures a team from step to step."""

    def __init__(self, team: "Team", now: Callable[[], float] = time.monotonic) -> None:
        self._team = team
        self._now = now
        self._last = now()
        self._known: dict[str, Use] = {}

    async def measure(self) -> dict[str, float]:
        """The shares since the last call, as means over engines and over learners."""
        use = await self._team.use()
        now = self._now()
        seconds, self._last = max(1e-9, now - self._last), now
        engines = self._since("engine", use.engines)
        learners = self._since("learner", use.learners)
        shares = {
            "engines": [one.busy_seconds / seconds for one in engines],
            "slots": [one.filled_seconds / seconds for one in engines],
            "learners": [one.busy_seconds / seconds for one in learners],
        }
        return {name: idle(some) for name, some in shares.items() if some}

    def _since(self, kind: str, totals: Mapping[str, Use]) -> list[Use]:
        """The use since the last call. That of a process that was restarted began at 0."""
        found = []
        for name, use in totals.items():
            key = f"{kind} {name}"
            known = self._known.get(key, NOTHING)
            if use.busy_seconds < known.busy_seconds:
                known = NOTHING
            found.append(Use(*(new - old for new, old in zip(use, known, strict=True))))
            self._known[key] = use
        return found


def idle(busy: Sequence[float]) -> float:
    """The mean idle share, given busy shares. Clocks of several machines differ slightly."""
    return min(1.0, max(0.0, 1 - sum(busy) / len(busy)))
