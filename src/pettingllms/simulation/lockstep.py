"""A simulated engine that answers batches of requests in lockstep (plain PyTorch).

A batch takes all requests that arrived during the last one. Its parts, as `lockstep_parts` divides
them, are decoded one after another; the replies of a part arrive when its longest one ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pettingllms.rollouts.routing import lockstep_parts
from pettingllms.simulation.clock import Clock
from pettingllms.simulation.engine import Engine, Request
from pettingllms.simulation.speeds import EngineSpeed


@dataclass(frozen=True, slots=True)
class PartWork:
    """What the seconds of a part depend on."""

    prompt_tokens: int
    """Tokens of its distinct prompts."""
    num_steps: int
    """Tokens of its longest reply."""
    num_tokens: int
    """Tokens of its replies."""
    num_reads: float
    """Keys and values that its steps read, in tokens."""

    def seconds(self, speed: EngineSpeed) -> float:
        """Its time, if arithmetic decides and not the weights."""
        decoding = self.num_steps * speed.step + self.num_tokens * speed.token
        reading = self.prompt_tokens * speed.prefill + self.num_reads * speed.context
        return speed.call + decoding + reading


def work_of(requests: Sequence[Request]) -> PartWork:
    """The work of a part."""
    prompts: dict[tuple[int, ...], int] = {}
    num_tokens, num_reads = 0, 0.0
    for at, request in enumerate(requests):
        ask = request.ask
        is_common = ask.shared == ask.prompt
        key = (request.group, ask.place) if is_common else (request.group, ask.place, at)
        prompts[key] = ask.prompt
        num_tokens += ask.num_tokens
        num_reads += sum(n * (ask.prompt + n / 2) for n in ask.replies)
    longest = max(max(request.ask.replies) for request in requests)
    return PartWork(sum(prompts.values()), longest, num_tokens, num_reads)


class LockstepEngine(Engine):
    """An engine that decodes the requests of a part together."""

    def __init__(self, clock: Clock, speed: EngineSpeed, num_slots: int, slowness: float) -> None:
        super().__init__(clock, speed, num_slots, slowness)
        self._parts: list[list[Request]] = []
        self._part: list[Request] = []
        """Requests that are being decoded."""
        self.works: list[PartWork] = []
        """What it has decoded."""
        self.quiet_at: Callable[[], float] = lambda: 0.0
        """When the rollout worker in the same process is idle: only then requests are sent."""

    @property
    def num_running(self) -> int:
        """Replies that are being decoded."""
        return sum(len(request.ask.replies) for request in self._part)

    def fail(self, restart_seconds: float) -> None:
        """Lose the part that is being decoded; its batch starts over."""
        if not self.is_down:
            self._advance()
            lost = [*self._part, *(request for part in self._parts for request in part)]
            for request in sorted(lost, key=lambda one: one.number, reverse=True):
                self.waiting.appendleft(request)
            self._part, self._parts = [], []
        super().fail(restart_seconds)

    def _arrived(self) -> None:
        self._settle_soon()

    def _settle(self) -> None:
        self._is_settling = False
        if self.is_down or self._part:
            return
        if (wait := self.quiet_at() - self._clock.now) > 0:
            self._is_settling = True
            self._clock.after(wait, self._settle)
        else:
            self._next_part()

    def _next_part(self) -> None:
        if not self._parts and not self._closed:
            batch = list(self.waiting)
            self.waiting.clear()
            parts = lockstep_parts(batch, self._num_slots)
            self._parts = [[batch[at] for at in part] for part in parts]
        if not self._parts:
            return
        self._part = self._parts.pop(0)
        for request in self._part:
            if self.admitted is not None:
                self.admitted(request)
            request.version = self.versions.get(request.ask.policy, 0)
        work = work_of(self._part)
        self.works.append(work)
        self._generation += 1
        generation = self._generation

        def end() -> None:
            if generation == self._generation:
                self._end_part()

        self._clock.after(work.seconds(self._speed) * self._slowness, end)

    def _advance(self) -> None:
        passed = self._clock.now - self._last
        self._last = self._clock.now
        if self._part and not self.is_down:
            self.busy_seconds += passed
            self.reply_seconds += passed * self.num_running

    def _schedule(self) -> None:
        """The end of a part is planned when it begins."""

    def _end_part(self) -> None:
        self._advance()
        ended, self._part = self._part, []
        if self._closed and not self._parts:
            self._idle.happen()
        for request in ended:
            self.num_tokens += request.ask.num_tokens
            request.done()
        if self._parts:
            self._next_part()
        else:
            self._settle_soon()
