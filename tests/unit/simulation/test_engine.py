"""Simulated engines against the sums that their speeds give."""

import pytest

from pettingllms.simulation.clock import Clock, Countdown, SimulationError
from pettingllms.simulation.engine import Engine, Request
from pettingllms.simulation.learner import Learner
from pettingllms.simulation.lockstep import LockstepEngine
from pettingllms.simulation.speeds import EngineSpeed
from pettingllms.simulation.workload import Ask

SPEED = EngineSpeed(step=0.01, weights=0.02, token=0.004, context=1e-5, prefill=0.001, call=0.5)


class Asked:
    """Requests to one engine, and when they end."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine, self.clock = engine, clock
        self.ends: dict[int, float] = {}
        self.requests: list[Request] = []

    def ask(self, *replies: int, prompt: int = 0, shared: int = 0, group: int = 0) -> None:
        number = len(self.requests)

        def done() -> None:
            self.ends[number] = self.clock.now

        request = Request(Ask("p", prompt, shared, replies), group, done)
        self.requests.append(request)
        self.engine.submit(request)

    def run(self) -> list[float]:
        all_done = Countdown(len(self.requests))
        for request in self.requests:
            done = request.done
            request.done = lambda done=done: (done(), all_done.count())  # type: ignore[misc]
        self.clock.run_until(all_done)
        return [self.ends[at] for at in range(len(self.requests))]


def asked(num_slots: int = 8, speed: EngineSpeed = SPEED, slowness: float = 1.0) -> Asked:
    clock = Clock()
    return Asked(Engine(clock, speed, num_slots, slowness), clock)


def steps(count: int, num: int, cached: float) -> float:
    """Seconds of steps, one after another."""
    seconds = 0.0
    for _ in range(count):
        seconds += 0.01 + max(0.02, 0.004 * num) + 1e-5 * cached
        cached += num
    return seconds


def test_replies_of_different_lengths_end_as_if_every_step_were_simulated() -> None:
    one = asked()
    one.ask(100, prompt=50)
    one.ask(400, prompt=50)
    first = 0.1 + steps(100, 2, 100)  # both prompts are read first
    second = first + steps(300, 1, 150)
    assert one.run() == pytest.approx([first, second], rel=5e-3)
    assert one.engine.busy_seconds == pytest.approx(second, rel=5e-3)
    assert one.engine.reply_seconds == pytest.approx(first + second, rel=5e-3)


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    one = asked(num_slots=64)
    one.ask(*[100] * 50)
    assert one.run()[0] == pytest.approx(steps(100, 50, 0), rel=5e-3)


def test_requests_beyond_the_slots_wait_in_order() -> None:
    one = asked(num_slots=1)
    for _ in range(3):
        one.ask(100)
    alone = steps(100, 1, 0)
    assert one.run() == pytest.approx([alone, 2 * alone, 3 * alone], rel=5e-3)


def test_a_full_kv_cache_makes_requests_wait() -> None:
    one = asked(speed=EngineSpeed(0.01, capacity=150))
    one.ask(100)
    one.ask(100)
    assert one.run() == pytest.approx([1.0, 2.0], rel=1e-3)


def test_siblings_read_a_shared_prompt_once() -> None:
    speed = EngineSpeed(0.01, prefill=0.001)
    alone, together = asked(speed=speed), asked(speed=speed)
    for at in range(4):
        alone.ask(10, prompt=1000, group=at)
        together.ask(10, prompt=1000, shared=1000)
    assert max(alone.run()) - max(together.run()) == pytest.approx(3.0, rel=1e-3)


def test_an_arrival_slows_running_replies_only_from_then_on() -> None:
    one = asked(speed=EngineSpeed(0.0, token=0.01))
    one.ask(100)
    one.clock.after(0.5, lambda: one.ask(1000))
    one.clock.run_until(_at(one.clock, 60.0))
    assert one.ends[0] == pytest.approx(0.5 + 50 * 0.02, rel=1e-3)
    assert one.ends[1] == pytest.approx(1.5 + 950 * 0.01, rel=1e-3)


def _at(clock: Clock, seconds: float) -> Countdown:
    event = Countdown(1)
    clock.after(seconds, event.count)
    return event


def test_a_lost_engine_starts_its_requests_over_with_its_newest_weights() -> None:
    one = asked(speed=EngineSpeed(0.01))
    one.engine.versions["p"] = 3
    one.ask(100)
    one.clock.after(0.5, lambda: one.engine.fail(10.0))
    one.clock.after(0.6, lambda: one.engine.load("p", 4))
    assert one.run() == pytest.approx([0.5 + 10 + 1.0], rel=1e-3)
    assert one.requests[0].version == 4


def test_running_replies_keep_their_version() -> None:
    one = asked(speed=EngineSpeed(0.01))
    one.engine.versions["p"] = 3
    one.ask(100)
    one.clock.after(0.5, lambda: one.engine.load("p", 4))
    one.clock.after(0.6, lambda: one.ask(10))
    one.clock.run_until(_at(one.clock, 5.0))
    assert [request.version for request in one.requests] == [3, 4]
    assert one.ends[0] == pytest.approx(1.0)


def test_draining_waits_for_running_replies_and_admits_none() -> None:
    one = asked(speed=EngineSpeed(0.01))
    one.ask(100)
    idle: list[float] = []

    def drain() -> None:
        one.engine.drain().then(lambda: idle.append(one.clock.now))
        one.ask(100)

    one.clock.after(0.5, drain)
    one.clock.after(3.0, one.engine.reopen)
    one.clock.run_until(_at(one.clock, 10.0))
    assert idle == pytest.approx([1.0])
    assert one.ends[1] == pytest.approx(4.0)


def test_weights_in_flight_pause_running_replies_and_read_their_contexts_again() -> None:
    one = asked(speed=EngineSpeed(0.01, prefill=0.001))
    one.ask(100, prompt=100)
    one.clock.after(0.6, lambda: one.engine.replace("p", 1, 2.0))
    assert one.run() == pytest.approx([0.1 + 1.0 + 2.0 + 0.15], rel=1e-2)
    assert one.requests[0].version == 0


def test_a_slow_engine_takes_longer() -> None:
    assert asked_once(2.0) == pytest.approx(2 * asked_once(1.0))


def asked_once(slowness: float) -> float:
    one = asked(slowness=slowness)
    one.ask(100, prompt=10)
    return one.run()[0]


def test_a_lockstep_engine_answers_a_part_when_its_longest_reply_ends() -> None:
    clock = Clock()
    one = Asked(LockstepEngine(clock, EngineSpeed(0.01, call=0.5), 4, 1.0), clock)
    for length in (10, 100, 20, 30, 40):
        one.ask(length)
    first, second = 0.5 + 1.0, 0.5 + 1.0 + 0.5 + 0.4
    assert one.run() == pytest.approx([first, first, first, first, second])


def test_a_learner_that_loses_a_rank_repeats_its_work() -> None:
    clock = Clock()
    learner = Learner(clock, 8)
    done = learner.work(10.0)
    clock.after(4.0, lambda: learner.fail(5.0))
    clock.run_until(done)
    assert clock.now == pytest.approx(4 + 5 + 10)
    assert learner.measured() == pytest.approx(10.0), "lost work does not count"


def test_a_run_in_which_nothing_happens_is_an_error() -> None:
    with pytest.raises(SimulationError, match="deadlock"):
        Clock().run_until(Countdown(1))
