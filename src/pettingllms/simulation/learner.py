"""A simulated learner: it works for a time, and repeats its work if it loses a rank."""

from pettingllms.simulation.clock import Clock, Event


class Learner:
    """All ranks of one model or critic."""

    def __init__(self, clock: Clock, num_gpus: int) -> None:
        self._clock = clock
        self.num_gpus = num_gpus
        self.busy_seconds = 0.0
        """Time of work that was not lost."""
        self._work: tuple[float, Event] | None = None
        self._started = 0.0
        self._generation = 0
        self._is_down = False

    def work(self, seconds: float) -> Event:
        """Work for a time; the event is its end."""
        done = Event()
        self._work = seconds, done
        if not self._is_down:
            self._begin()
        return done

    def fail(self, restart_seconds: float) -> None:
        """Lose a rank: the work under way is repeated after a restart."""
        if self._is_down:
            return
        self._generation += 1
        self._is_down = True
        self._clock.after(restart_seconds, self._restart)

    def measured(self) -> float:
        """Seconds of work until now."""
        is_working = self._work is not None and not self._is_down
        return self.busy_seconds + (self._clock.now - self._started if is_working else 0.0)

    def _restart(self) -> None:
        self._is_down = False
        if self._work is not None:
            self._begin()

    def _begin(self) -> None:
        assert self._work is not None  # noqa: S101 - the callers' part
        self._generation += 1
        self._started, generation = self._clock.now, self._generation

        def end() -> None:
            if generation == self._generation and self._work is not None:
                seconds, done = self._work
                self._work = None
                self.busy_seconds += seconds
                done.happen()

        self._clock.after(self._work[0], end)
