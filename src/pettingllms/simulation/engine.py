"""A simulated engine with continuous batching (vLLM).

Only the ends of replies are events. All running replies of an engine grow by one token per step,
so a reply of n tokens that starts when the engine has made s steps ends at step s + n.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pettingllms.simulation.clock import Clock, Event
from pettingllms.simulation.speeds import EngineSpeed
from pettingllms.simulation.workload import Ask

ALMOST = 1e-6
"""Part of a step that rounding may take."""
MAX_SIBLINGS = 4096


@dataclass(slots=True, eq=False)
class Request:
    """A request under way."""

    ask: Ask
    group: int
    done: Callable[[], None]
    version: int = -1
    """The policy's version when the request was first admitted."""
    left: int = 0
    """Replies that have not ended."""
    number: int = 0
    """Order of arrival at its engine."""

    @property
    def policy(self) -> str:
        """The policy that replies."""
        return self.ask.policy

    @property
    def num_samples(self) -> int:
        """Number of replies."""
        return len(self.ask.replies)

    @property
    def prompt_ids(self) -> range:
        """As many ids as the prompt has."""
        return range(self.ask.prompt)


class Engine:
    """An engine that starts a request as soon as there is room."""

    def __init__(self, clock: Clock, speed: EngineSpeed, num_slots: int, slowness: float) -> None:
        self._clock = clock
        self._speed = speed
        self._num_slots = num_slots
        self._slowness = slowness
        self.versions: dict[str, int] = {}
        """Version of each policy that it serves."""
        self.waiting: deque[Request] = deque()
        self._running: list[tuple[float, int, int, Request]] = []
        """Running replies: the step at which each ends, an order, and its tokens."""
        self._steps = 0.0
        self._cached = 0.0
        """Tokens of running replies and of their prompts."""
        self._reserved = 0.0
        """The same at the ends of these replies."""
        self._prefill = 0.0
        """Seconds of prompts that must be read before decoding continues."""
        self._last = 0.0
        self._generation = 0
        self._is_settling = False
        self._prefixes: set[tuple[int, int]] = set()
        self._num_arrived = 0
        self._closed = 0
        """Updates that wait for the end of running requests, or run."""
        self._idle = Event()
        self.is_down = False
        self._up = Event()
        self.busy_seconds = 0.0
        """Time with at least one running reply."""
        self.reply_seconds = 0.0
        """Sum over running replies of their time."""
        self.num_tokens = 0
        """Tokens of replies that ended."""
        self.admitted: Callable[[Request], None] | None = None
        """Called for each request that is admitted."""

    @property
    def num_running(self) -> int:
        """Replies that are being decoded."""
        return len(self._running)

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._num_arrived += 1
        request.number = self._num_arrived
        self.waiting.append(request)
        self._arrived()

    def load(self, policy: str, version: int) -> None:
        """Take new weights. Running requests keep the weights, and the version, they began with."""
        self.versions[policy] = version
        self._prefixes.clear()

    def replace(self, policy: str, version: int, seconds: float) -> None:
        """Take new weights of the whole model in flight: pause, then read the contexts of running
        replies again, which continue with the new weights."""
        self._advance()
        self.load(policy, version)
        if self._running and not self.is_down:
            self._prefill += seconds + self._cached * self._speed.prefill
            self._schedule()

    def drain(self) -> Event:
        """Admit no more requests; the event is the end of those that run."""
        self._closed += 1
        if self._closed == 1:
            self._idle = Event()
            if not self.num_running and not self.is_down:
                self._idle.happen()
        return self._idle

    def reopen(self) -> None:
        """Admit requests again, after `drain`."""
        self._closed -= 1
        self._settle_soon()

    def fail(self, restart_seconds: float) -> None:
        """Lose all running requests, which start over once the engine has restarted."""
        if self.is_down:
            return
        self._advance()
        lost = {id(request): request for *_, request in self._running}
        for request in sorted(lost.values(), key=lambda one: one.number, reverse=True):
            self.waiting.appendleft(request)
        self._running, self._cached, self._reserved, self._prefill = [], 0.0, 0.0, 0.0
        self._prefixes.clear()
        self._generation += 1
        self.is_down, self._up = True, Event()
        self._clock.after(restart_seconds, self._restart)

    def when_up(self) -> Event:
        """An event that happens when the engine is not down; at once, if it is not."""
        if self.is_down:
            return self._up
        event = Event()
        event.happen()
        return event

    def measure(self) -> None:
        """Bring `busy_seconds` and `reply_seconds` up to date."""
        self._advance()
        self._schedule()

    def _restart(self) -> None:
        self._last = self._clock.now
        self.is_down = False
        self._up.happen()
        if self._closed and not self._idle.happened:
            self._idle.happen()
        self._settle_soon()

    def _arrived(self) -> None:
        if not self.is_down and not self._closed:
            self._settle()

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._clock.after(0.0, self._settle)

    def _settle(self) -> None:
        self._is_settling = False
        if self.is_down:
            return
        self._advance()
        self._admit()
        self._schedule()

    def _advance(self) -> None:
        """Decode until now."""
        passed = self._clock.now - self._last
        self._last = self._clock.now
        num = len(self._running)
        if not num or passed <= 0 or self.is_down:
            return
        self.busy_seconds += passed
        self.reply_seconds += passed * num
        seconds = passed / self._slowness
        if self._prefill:
            reading = min(self._prefill, seconds)
            self._prefill -= reading
            seconds -= reading
        if seconds > 0:
            steps = self._speed.steps_within(seconds, num, self._cached)
            self._steps += steps
            self._cached += steps * num

    def _schedule(self) -> None:
        """Plan the next end of a reply."""
        self._generation += 1
        if not self._running or self.is_down:
            return
        steps = max(0.0, self._running[0][0] - self._steps)
        decoding = self._speed.decode_seconds(steps, len(self._running), self._cached)
        generation = self._generation

        def end() -> None:
            if generation == self._generation:
                self._end_replies()

        self._clock.after((self._prefill + decoding) * self._slowness, end)

    def _end_replies(self) -> None:
        self._advance()
        ended: list[Request] = []
        first = self._running[0][0]
        self._steps = max(self._steps, first - ALMOST)  # rounding must not end nothing
        while self._running and self._running[0][0] <= self._steps + 2 * ALMOST:
            _, _, length, request = heapq.heappop(self._running)
            tokens = request.ask.prompt + length
            self._cached -= tokens
            self._reserved -= tokens
            request.left -= 1
            if not request.left:
                ended.append(request)
        if not self._running:
            self._cached = self._reserved = 0.0
            if self._closed:
                self._idle.happen()
        self._admit()
        self._schedule()
        for request in ended:
            self.num_tokens += request.ask.num_tokens
            request.done()

    def _admit(self) -> None:
        """Admit requests in order of arrival, while there is room."""
        while self.waiting and not self._closed:
            ask = self.waiting[0].ask
            if self._running and (
                len(self._running) >= self._num_slots
                or self._reserved + ask.num_cached > self._speed.capacity
            ):
                return
            self._begin(self.waiting.popleft())

    def _begin(self, request: Request) -> None:
        ask = request.ask
        if self.admitted is not None:
            self.admitted(request)
        request.version = self.versions.get(ask.policy, 0)
        request.left = len(ask.replies)
        prefix = request.group, ask.place
        is_known = prefix in self._prefixes
        self._prefixes.add(prefix)
        unread = ask.prompt - ask.shared if is_known else ask.prompt
        self._prefill += unread * self._speed.prefill
        for at, length in enumerate(ask.replies):
            order = request.number * MAX_SIBLINGS + at
            heapq.heappush(self._running, (self._steps + length, order, length, request))
        self._cached += ask.prompt * len(ask.replies)
        self._reserved += ask.num_cached
