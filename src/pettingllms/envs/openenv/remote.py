"""`openenv:URL`: an environment that an OpenEnv server runs, as an environment here.

A server that speaks the multi-agent extension (`serve-env --openenv`) has roles, tasks, levels of
reward, and forks if its environment has. Any other OpenEnv server is an environment with one role,
`agent`, whose state cannot be forked.

A state holds the task, the seed and all replies since, so it can be compared and pickled. Its
`live` part is a session of the server. If the session is gone, the replies are replayed in another
one where the server supports forks; elsewhere the episode fails.
"""

import random
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pydantic import Field as Option

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.openenv.connection import (
    BUSY,
    Connection,
    ConnectionLost,
    ServerError,
    read_address,
)
from pettingllms.envs.openenv.fields import Field
from pettingllms.envs.openenv.plain import ROLE, PlainState, plain_seed, read_plain
from pettingllms.envs.openenv.wire import (
    ALL_ROLES,
    KEY,
    UNKNOWN_STATE,
    VERDICTS,
    Outcome,
    Seen,
    info_from_json,
    outcome_from_json,
    reward_from_json,
)
from pettingllms.errors import ConfigError, ForkError, NoAnswerError, nearest
from pettingllms.runtime.call_clock import pause_call_clock
from pettingllms.types import Failed, Message, Reward, Submission, Task

FIRST_WAIT, MAX_WAIT = 0.25, 4.0
"""Seconds before the first retry, doubled each time, and the longest."""
ResultT = TypeVar("ResultT")


class OpenEnvConfig(EnvConfig):
    """Options of an environment on an OpenEnv server."""

    role: str = ""
    """Play this role only; scripted players on the server play the others. Left out: play all
    roles."""
    co_players: str = "random"
    """Scripted player of the other roles, with env.role."""
    seconds: float = Option(default=60.0, gt=0)
    """Deadline for an answer of the server, and for a free session if the server is full."""
    connect_seconds: float = Option(default=10.0, gt=0)
    """Deadline for a connection."""
    num_tries: int = Option(default=4, ge=1)
    """Tries of a connection, a reset, and a step that can be replayed."""
    key: str = ""
    """Environment variable with an API key for the server."""
    num_tasks: int = Option(default=1024, ge=1)
    """Tasks per split of a server without the extension. They differ only in their seeds."""
    action_field: str = ""
    """Key of the action that takes the reply, for a server without the extension. Left out: the
    only required key of its action schema; if there are several, replies must be JSON objects."""
    observation_field: str = ""
    """Key of the observation to show, for a server without the extension. Left out: `messages` if
    it has them, otherwise the whole observation as JSON."""
    success_reward: float = 1.0
    """Total reward of a successful episode, for a server without the extension."""


class LiveSession:
    """A connection and the server's number of a state; forgotten by pickle."""

    def __init__(self, session: "Session | None" = None, number: int = 0) -> None:
        self.session, self.number = session, number

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveSession, ()


class Session:
    """A connection that an episode uses. It is free for the next one when no state refers to it."""

    def __init__(self, connection: Connection, free: "deque[Connection]") -> None:
        self.connection = connection
        self.latest = 0
        weakref.finalize(self, free.append, connection)


@dataclass(frozen=True, slots=True)
class RemoteState:
    """The task, the seed, all replies since, and what roles see now."""

    split: Split
    task: int
    seed: int
    replies: tuple[tuple[tuple[str, str], ...], ...]
    seen: Seen
    live: LiveSession = field(default_factory=LiveSession, compare=False, repr=False)


class RemoteTasks(SeededTasks):
    """Tasks of a server by their number. Their content stays there."""


class OpenEnvServer(Environment[Any, OpenEnvConfig]):
    """An environment on an OpenEnv server."""

    Config = OpenEnvConfig
    has_centralized_observation = False
    blocking = True

    def __init__(self, config: OpenEnvConfig) -> None:
        super().__init__(config)
        self.id = config.id
        self.url = config.id.partition(":")[2]
        self._free: deque[Connection] = deque()
        self._closing = weakref.finalize(self, _close_all, self._free)
        self._address = read_address(self.url, config.key, config.seconds, config.connect_seconds)
        given = self._retry(self._describe)
        self._plain = None if given.has(KEY) else read_plain(self._address, config)
        if self._plain is not None:
            self._roles: tuple[str, ...] = self._plain.roles
            self.late_rewards, self.can_fork, self.limit_reward = True, False, -1.0
            return
        self.info = info_from_json(given[KEY])
        self._roles = self._played_roles()
        self.late_rewards, self.can_fork = self.info.late_rewards, self.info.can_fork
        self.limit_reward = self.info.limit_reward
        self.limit_level = "team" if self.info.limit_level == "team" else "agent"
        self.judged, self.submits = self.info.judged, self.info.submits
        self.rule_parts = self.info.rule_parts
        self.runs_programs = self.info.runs_programs
        self.players = {name: partial(_ask_player, name) for name in self.info.players}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    def close(self) -> None:
        """Close the connections that no episode uses."""
        _close_all(self._free)

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    @property
    def image_roles(self) -> tuple[str, ...]:
        known = () if self._plain is not None else self.info.image_roles
        return tuple(role for role in known if role in self._roles)

    def tasks(self, split: Split) -> Sequence[Task]:
        number = self.config.num_tasks if self._plain else self.info.num_tasks[split]
        return RemoteTasks(split, number)

    def reset(self, task: Task, seed: int) -> Any:
        split, _, number = task.id.rpartition("-")
        if self._plain is not None:
            return self._retry(partial(self._start_plain, plain_seed(task.seed, seed)))
        at: Split = "test" if split == "test" else "train"
        live, outcome = self._retry(partial(self._reset, at, int(number), seed))
        return RemoteState(at, int(number), seed, (), outcome.seen, live)

    def acting(self, state: Any) -> tuple[str, ...]:
        if self._plain is not None:
            return () if state.done else (ROLE,)
        return tuple(state.seen.acting)

    def observe(self, state: Any, role: str) -> Sequence[Message]:
        if self._plain is not None:
            return tuple(state.messages)
        found: dict[str, tuple[Message, ...]] = dict(state.seen.observations)
        if role not in found:
            raise ValueError(
                f"the server shows observations to acting roles only, and '{role}' is not acting"
            )
        return found[role]

    def step(self, state: Any, replies: Mapping[str, str]) -> StepResult[Any]:
        if self._plain is not None:
            return self._plain.step(state, replies[ROLE])
        given = {role: replies[role] for role in state.seen.acting}
        live, outcome = self._at_state(state, {"replies": given})
        after = RemoteState(
            state.split,
            state.task,
            state.seed,
            (*state.replies, tuple(given.items())),
            outcome.seen,
            live,
        )
        return StepResult(after, outcome.rewards, outcome.metrics, outcome.submissions)

    def success(self, state: Any, role: str) -> bool:
        if self._plain is not None:
            return bool((state.total or 0.0) >= self.config.success_reward)
        return bool(dict(state.seen.success).get(role, False))

    def answer(self, state: Any, role: str) -> str | None:
        if self._plain is not None:
            return None
        found: dict[str, str] = dict(state.seen.answers)
        return found.get(role)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        given = submission.facts.get(VERDICTS, {})
        if part not in given:
            return Failed(f"{self.url} gave no score of its rule {part!r:.60}", "judge")
        return reward_from_json(Field(f"verdicts.{part}", given[part]))

    def silence(self, state: Any, role: str) -> str:
        if self._plain is not None:
            return ""
        found: dict[str, str] = dict(state.seen.silence)
        return found.get(role, "")

    def solo(self) -> Environment[Any, Any]:
        return self if len(self._roles) == 1 else super().solo()

    def ask(self, state: RemoteState, role: str, player: str, seed: int) -> str:
        """The reply of a scripted player of the server."""
        asked = {"player": player, "role": role, "seed": seed}
        live, outcome = self._at_state(state, {"ask": asked})
        if outcome.reply is None:
            raise NoAnswerError(f"{self.url} gave no reply of its player '{player}'")
        state.live.session, state.live.number = live.session, live.number
        return outcome.reply

    def _played_roles(self) -> tuple[str, ...]:
        if not self.config.role:
            return self.info.roles
        if self.config.role not in self.info.roles:
            advice = nearest(self.config.role, self.info.roles)
            problem = f"role: {self.url} has no role '{self.config.role}'; {advice}"
            raise ConfigError(self.id, [problem])
        return (self.config.role,)

    def _open(self) -> Session:
        """A session on a free connection, or on a new one."""
        while self._free:
            try:
                connection = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if connection.is_open:
                return Session(connection, self._free)
        return Session(Connection(self._address), self._free)

    def _describe(self) -> Field:
        """What the server says about itself; nothing if it has no state before a reset."""
        session = self._open()
        try:
            return session.connection.request("state")
        except ServerError as error:
            if error.code == BUSY:
                raise
            return Field("state", {})

    def _retry(self, attempt: Callable[[], ResultT]) -> ResultT:
        """Repeat what starts on a fresh session while the server is restarting, and until the
        deadline while it is full."""
        end, num_lost, wait = time.monotonic() + self.config.seconds, 0, FIRST_WAIT
        while True:
            try:
                return attempt()
            except ConnectionLost:
                num_lost += 1
                if num_lost >= self.config.num_tries:
                    raise
            except ServerError as error:
                if error.code != BUSY or time.monotonic() + wait > end:
                    raise
            with pause_call_clock():
                time.sleep(wait)
            wait = min(2 * wait, MAX_WAIT)

    def _start_plain(self, seed: int) -> PlainState:
        assert self._plain is not None  # noqa: S101 - asked before
        session = self._open()
        return self._plain.start(session.connection, session, seed)

    def _reset(self, split: Split, task: int, seed: int) -> tuple[LiveSession, Outcome]:
        session = self._open()
        request: dict[str, Any] = {"split": split, "task": task, "seed": seed}
        request["role"] = self.config.role or ALL_ROLES
        if self.config.role:
            request["co_players"] = self.config.co_players
        return self._read(session, session.connection.request("reset", request))

    def _read(self, session: Session, data: Field) -> tuple[LiveSession, Outcome]:
        try:
            outcome = outcome_from_json(data, self._roles)
        except ValueError:
            session.connection.close()
            raise
        session.latest = outcome.state
        return LiveSession(session, outcome.state), outcome

    def _at_state(self, state: RemoteState, action: dict[str, Any]) -> tuple[LiveSession, Outcome]:
        """Send an action to a state, in another session if the first is gone."""
        session, number = state.live.session, state.live.number
        if session is not None and (self.can_fork or session.latest == number):
            try:
                sent = {**action, "state": number}
                return self._read(session, session.connection.request("step", sent))
            except ConnectionLost:
                if not self.can_fork:
                    raise
            except ServerError as error:
                if not (self.can_fork and error.text.startswith(UNKNOWN_STATE)):
                    raise
        elif not self.can_fork:
            raise ForkError(
                f"'{self.id}' cannot fork: its server keeps only the latest state of an episode; "
                "step each state once, in the process that reset it"
            )
        return self._retry(partial(self._replay, state, action))

    def _replay(self, state: RemoteState, action: dict[str, Any]) -> tuple[LiveSession, Outcome]:
        """Reach the state again in another session, then send the action."""
        live, outcome = self._reset(state.split, state.task, state.seed)
        for replies in state.replies:
            live, outcome = self._send(live, {"replies": dict(replies)})
        if outcome.seen != state.seen:
            raise ForkError(
                f"'{self.id}' cannot fork: replaying its replies gives another state, so its "
                "server is not deterministic, or has changed"
            )
        return self._send(live, action)

    def _send(self, live: LiveSession, action: dict[str, Any]) -> tuple[LiveSession, Outcome]:
        assert live.session is not None  # noqa: S101 - just opened
        sent = {**action, "state": live.number}
        return self._read(live.session, live.session.connection.request("step", sent))


def _ask_player(
    name: str, env: OpenEnvServer, state: RemoteState, role: str, rng: random.Random
) -> str:
    return env.ask(state, role, name, rng.getrandbits(53))


def _close_all(free: "deque[Connection]") -> None:
    while free:
        free.popleft().close()
