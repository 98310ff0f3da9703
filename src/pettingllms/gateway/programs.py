"""Where programs run, and how one play of a program becomes an episode.

Programs run on an event loop of their own, in one thread, and those that are not `async` on threads
beside it: one that blocks holds up other programs, never the server that it waits for. A thread
whose program never ends is left behind.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pettingllms.config import RolloutConfig
from pettingllms.envs.base import successes
from pettingllms.envs.workflow import Agents, Workflow
from pettingllms.errors import describe
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.session import Limits, Session, merged
from pettingllms.rollouts.player import Player
from pettingllms.runtime.in_flight import ServiceClock, service_timeout
from pettingllms.seeds import derive_seed
from pettingllms.types import NO_REWARDS, Episode, Failed, Rewards, Task

ResultT = TypeVar("ResultT")
Begin = Callable[[ServiceClock], None]
"""Takes the clock of a program that begins."""
MAX_ON_THREADS = 64
"""Programs under way on threads at once, not counting those that were left behind."""


class Stage:
    """A thread with an event loop for programs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._free = asyncio.Semaphore(MAX_ON_THREADS)
        self._thread = threading.Thread(target=self._turn, daemon=True, name="programs")

    def start(self) -> None:
        """Be ready for programs."""
        self._thread.start()

    def stop(self) -> None:
        """Leave whatever still runs behind."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def _turn(self) -> None:
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    async def run(
        self,
        workflow: Workflow[Any],
        task: Task,
        agents: Agents,
        begin: Begin = lambda _: None,
    ) -> Any | Failed:
        """What a workflow's program comes to, or why it came to nothing."""
        seconds = workflow.config.seconds
        if workflow.is_async:
            program = _contained(workflow.run(task, agents))
            running = asyncio.run_coroutine_threadsafe(program, self._loop)
            return await _end(running, seconds, begin)
        async with self._free:
            return await _end(on_thread(workflow.run, task, agents), seconds, begin)

    async def call(self, seconds: float, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """The result of a function that may take its time."""
        async with self._free:
            result, _ = await asyncio.wait(
                [asyncio.wrap_future(on_thread(function, *args))], timeout=seconds
            )
        if not result:
            raise TimeoutError(f"it did not return within {seconds:g} s (env.seconds)")
        return result.pop().result()


def on_thread(function: Callable[..., ResultT], *args: Any) -> "Future[ResultT]":
    """Call it on a thread of its own, so that one that never ends is in nobody's way."""
    done: Future[ResultT] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            done.set_exception(_harmless(error))

    threading.Thread(target=run, daemon=True, name="program").start()
    return done


async def _contained(program: Coroutine[Any, Any, ResultT]) -> ResultT:
    try:
        return await program
    except (SystemExit, KeyboardInterrupt) as error:
        raise _harmless(error) from error


def _harmless(error: BaseException) -> BaseException:
    """What a program raised to end its process, as something that ends no loop of ours."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return RuntimeError(f"it wanted to end the process ({describe(error)})")
    return error


async def _end(running: "Future[Any]", seconds: float, begin: Begin) -> Any | Failed:
    """What a program came to in that time, or why it came to nothing."""
    try:
        async with service_timeout(seconds) as deadline:
            begin(deadline)
            return await asyncio.wrap_future(running)
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return Failed(f"the program was cancelled: {describe(error)}", "environment")
    except Exception as error:  # noqa: BLE001 - somebody else's program
        if deadline.expired():
            reason = f"the program did not end within {seconds:g} s (env.seconds)"
            return Failed(reason, "limit")
        return Failed(f"the program raised {describe(error)}", "environment")


@dataclass(frozen=True, slots=True)
class Play:
    """Plays the episodes of a workflow."""

    gateway: Gateway
    stage: Stage
    config: RolloutConfig

    async def __call__(
        self, workflow: Workflow[Any], episode: Episode, players: Mapping[str, Player], path: int
    ) -> None:
        """Run the program once for the episode's task, and fill in the episode."""
        seed = derive_seed("play", episode.seed, path)
        session = self.gateway.open(episode, players, seed, workflow.rules, self._limits(workflow))
        agents = self.gateway.agents(session)

        def begin(clock: ServiceClock) -> None:
            session.clock = clock

        try:
            result = await self.stage.run(workflow, episode.task, agents, begin)
        finally:
            self.gateway.close(session)
        if session.fatal is not None:
            raise session.fatal
        if isinstance(result, Failed) and not session.limit:
            session.limit = session.too_long  # the program could not go on with it
        if session.limit and episode.failure is None:
            self._end_at_limit(workflow, session)
            return
        if isinstance(result, Failed):
            limit = (
                episode.failure if episode.failure and episode.failure.owner == "limit" else None
            )
            episode.failure = limit or result
        if episode.failure is None:
            await self._judge(workflow, episode, result)

    def _end_at_limit(self, workflow: Workflow[Any], session: Session) -> None:
        roles = session.cut_roles or workflow.roles
        bootstrap = self.config.on_limit == "bootstrap"
        session.end_at_limit(NO_REWARDS if bootstrap else workflow.limit_rewards(roles))
        session.episode.success = dict.fromkeys(workflow.roles, False)

    async def _judge(self, workflow: Workflow[Any], episode: Episode, result: Any) -> None:
        def judge() -> tuple[Rewards, dict[str, bool], dict[str, str]]:
            paid = workflow.score(episode.task, result)
            success = successes(workflow, result)
            found = {role: workflow.answer(result, role) for role in workflow.roles}
            return paid, success, {role: a for role, a in found.items() if a is not None}

        try:
            paid, success, answers = await self.stage.call(workflow.config.seconds, judge)
            last = episode.steps[-1]
            last.rewards = merged([last.rewards, _sound(paid, episode, workflow)])
            episode.success, episode.answers = success, answers
        except Exception as error:  # noqa: BLE001 - the same
            episode.failure = Failed(f"score raised {describe(error)}", "environment")

    def _limits(self, workflow: Workflow[Any]) -> Limits:
        config = self.config
        return Limits(
            config.max_steps,
            config.max_reply_tokens,
            config.max_episode_tokens,
            config.sampler_timeout,
            workflow.config.guided,
            config.on_limit == "exclude",
        )


def _sound(paid: Rewards, episode: Episode, workflow: Workflow[Any]) -> Rewards:
    """What `score` gave, if it is what the contract says."""
    if not isinstance(paid, Rewards):
        raise TypeError(f"{paid!r:.60} is no Rewards")
    if paid.process:
        raise ValueError("a process reward is for one reply: post it while the program runs")
    if unknown := set(paid.agent) - set(workflow.roles):
        raise ValueError(f"no such role: {', '.join(unknown)}")
    if paid.team is None and not paid.agent and not any(_pays(episode)):
        raise ValueError("nothing was paid, by `score` or while the program ran")
    return paid


def _pays(episode: Episode) -> list[bool]:
    paid = [step.rewards for step in episode.steps]
    return [bool(r.process or r.agent or r.team is not None) for r in paid]
