"""Runs workflow programs, and turns each run of a program into an episode.

Async programs share a separate event loop in one thread; each blocking program gets a thread. A
program that blocks the loop delays other programs, but never the server that answers its calls. The
thread of a program that never ends is abandoned.
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
"""Takes the clock of a program when it starts."""
MAX_ON_THREADS = 64
"""Programs that may run on threads at once, not counting abandoned ones."""


class ProgramThread:
    """A thread with an event loop that runs programs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._free = asyncio.Semaphore(MAX_ON_THREADS)
        self._thread = threading.Thread(target=self._run_loop, daemon=True, name="programs")

    def start(self) -> None:
        """Start the event loop's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the event loop and abandon programs that still run."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def _run_loop(self) -> None:
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
        """Run a workflow's program. Returns its result, or the failure."""
        seconds = workflow.config.seconds
        if workflow.is_async:
            program = _contained(workflow.run(task, agents))
            running = asyncio.run_coroutine_threadsafe(program, self._loop)
            return await _result(running, seconds, begin)
        async with self._free:
            return await _result(on_thread(workflow.run, task, agents), seconds, begin)

    async def call(self, seconds: float, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """Call a blocking function on a thread and return its result."""
        async with self._free:
            done, _ = await asyncio.wait(
                [asyncio.wrap_future(on_thread(function, *args))], timeout=seconds
            )
        if not done:
            raise TimeoutError(f"it did not return within {seconds:g} s (env.seconds)")
        return done.pop().result()


def on_thread(function: Callable[..., ResultT], *args: Any) -> "Future[ResultT]":
    """Call a function on a new thread, so that one that never ends blocks no other."""
    done: Future[ResultT] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            done.set_exception(_contained_error(error))

    threading.Thread(target=run, daemon=True, name="program").start()
    return done


async def _contained(program: Coroutine[Any, Any, ResultT]) -> ResultT:
    try:
        return await program
    except (SystemExit, KeyboardInterrupt) as error:
        raise _contained_error(error) from error


def _contained_error(error: BaseException) -> BaseException:
    """Replace exceptions that would end this process by a RuntimeError."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return RuntimeError(f"it tried to end the process ({describe(error)})")
    return error


async def _result(running: "Future[Any]", seconds: float, begin: Begin) -> Any | Failed:
    """Wait for a program. Returns its result, or the failure."""
    try:
        async with service_timeout(seconds) as deadline:
            begin(deadline)
            return await asyncio.wrap_future(running)
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return Failed(f"the program was cancelled: {describe(error)}", "environment")
    except Exception as error:  # noqa: BLE001 - user code
        if deadline.expired():
            reason = f"the program did not end within {seconds:g} s (env.seconds)"
            return Failed(reason, "limit")
        return Failed(f"the program raised {describe(error)}", "environment")


@dataclass(frozen=True, slots=True)
class ProgramRollout:
    """Rolls out the episodes of a workflow."""

    gateway: Gateway
    thread: ProgramThread
    config: RolloutConfig

    async def __call__(
        self, workflow: Workflow[Any], episode: Episode, players: Mapping[str, Player], path: int
    ) -> None:
        """Run the program once on the episode's task and complete the episode."""
        seed = derive_seed("play", episode.seed, path)
        session = self.gateway.open(episode, players, seed, workflow.rules, self._limits(workflow))
        agents = self.gateway.agents(session)

        def begin(clock: ServiceClock) -> None:
            session.clock = clock

        try:
            result = await self.thread.run(workflow, episode.task, agents, begin)
        finally:
            self.gateway.close(session)
        if session.fatal is not None:
            raise session.fatal
        if isinstance(result, Failed) and not session.limit:
            session.limit = session.too_long  # the program failed because of it
        if session.limit and episode.failure is None:
            self._end_at_limit(workflow, session)
            return
        if isinstance(result, Failed):
            limit = (
                episode.failure if episode.failure and episode.failure.owner == "limit" else None
            )
            episode.failure = limit or result
        if episode.failure is None:
            await self._score(workflow, episode, result)

    def _end_at_limit(self, workflow: Workflow[Any], session: Session) -> None:
        roles = session.cut_roles or workflow.roles
        bootstrap = self.config.on_limit == "bootstrap"
        session.end_at_limit(NO_REWARDS if bootstrap else workflow.limit_rewards(roles))
        session.episode.success = dict.fromkeys(workflow.roles, False)

    async def _score(self, workflow: Workflow[Any], episode: Episode, result: Any) -> None:
        def score() -> tuple[Rewards, dict[str, bool], dict[str, str]]:
            rewards = workflow.score(episode.task, result)
            success = successes(workflow, result)
            found = {role: workflow.answer(result, role) for role in workflow.roles}
            return rewards, success, {role: a for role, a in found.items() if a is not None}

        try:
            rewards, success, answers = await self.thread.call(workflow.config.seconds, score)
            last = episode.steps[-1]
            check_rewards(rewards, episode, workflow)
            last.rewards = merged([last.rewards, rewards])
            episode.success, episode.answers = success, answers
        except Exception as error:  # noqa: BLE001 - user code
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
            config.reply_tokens,
        )


def check_rewards(rewards: Rewards, episode: Episode, workflow: Workflow[Any]) -> None:
    """Reject rewards from `score` that break the contract of workflows."""
    if not isinstance(rewards, Rewards):
        raise TypeError(f"expected Rewards, got {rewards!r:.60}")
    if rewards.process:
        raise ValueError("process rewards are for single replies: post them while the program runs")
    if unknown := set(rewards.agent) - set(workflow.roles):
        raise ValueError(f"no such role: {', '.join(unknown)}")
    if rewards.team is None and not rewards.agent and not _has_rewards(episode):
        raise ValueError("no reward, neither from `score` nor posted while the program ran")


def _has_rewards(episode: Episode) -> bool:
    found = [step.rewards for step in episode.steps]
    return any(r.process or r.agent or r.team is not None for r in found)
