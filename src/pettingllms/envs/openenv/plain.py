"""OpenEnv servers without the multi-agent extension: one role, one number as reward, no forks.

The role `agent` reads observations as JSON, or one field of them, and its reply is one field of the
action, or the action as a JSON object.
"""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pettingllms.envs.base import StepResult
from pettingllms.envs.openenv.connection import (
    REFUSED,
    Address,
    Connection,
    ServerError,
    get_json,
)
from pettingllms.envs.openenv.fields import MAX_TEXT, Field, clean, read_object
from pettingllms.envs.openenv.wire import MAX_MESSAGES, MAX_NUMBERS, SPEAKERS
from pettingllms.errors import ConfigError, ForkError, WireError, nearest
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Message, Reward, Rewards, Scored, assistant, user

if TYPE_CHECKING:
    from pettingllms.envs.openenv.remote import OpenEnvConfig

ROLE = "agent"
FORFEIT = -1.0
"""Reward for a reply that is no action; it ends the episode."""
MAX_SEED = 2**31
"""Seeds of servers are below this, because NumPy and many games take no larger ones."""
NUMBERS = ("integer", "number", "boolean")


class PlainSession:
    """The session of an episode, and the number of its steps, which no copy of a state can have."""

    def __init__(self, session: Any = None) -> None:
        self.session, self.num_steps = session, 0

    def __reduce__(self) -> tuple[Any, ...]:
        return PlainSession, ()


@dataclass(frozen=True, slots=True)
class PlainState:
    """The conversation so far."""

    seed: int
    messages: tuple[Message, ...]
    num_steps: int = 0
    done: bool = False
    total: float | None = None
    live: PlainSession = field(default_factory=PlainSession, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlainServer:
    """How to write actions and read observations."""

    url: str
    action_field: str
    action_kind: str
    config: "OpenEnvConfig"
    roles: tuple[str, ...] = (ROLE,)

    def start(self, connection: Connection, session: Any, seed: int) -> PlainState:
        """The state after a reset."""
        data = connection.request("reset", {"seed": seed})
        live = PlainSession(session)
        return PlainState(seed, self._shown(data["observation"]), 0, _is_done(data), None, live)

    def step(self, state: PlainState, reply: str) -> StepResult[PlainState]:
        """Send an action; a reply that is none ends the episode."""
        live = state.live
        if live.session is None or live.num_steps != state.num_steps:
            raise ForkError(
                f"{self.url} keeps only the latest state of an episode; step each state once, in "
                "the process that reset it"
            )
        said = assistant(clean(reply))
        try:
            action = self._action(reply)
        except WireError:
            return self._forfeited(state, said)
        live.num_steps += 1
        try:
            data = live.session.connection.request("step", action)
        except ServerError as error:
            if error.code != REFUSED:
                raise
            return self._forfeited(state, said)
        reward, done = _reward_of(data["reward"]), _is_done(data)
        total = state.total
        if reward is not None:
            total = (total or 0.0) + reward
        after = PlainState(
            state.seed,
            (*state.messages, said, *self._shown(data["observation"])),
            state.num_steps + 1,
            done,
            total,
            live,
        )
        given: Reward | None = None if reward is None else Scored(reward)
        if done and total is None:
            given = Failed(f"{self.url} gave no reward in the whole episode", "environment")
        return StepResult(after, Rewards(agent={} if given is None else {ROLE: given}))

    def _forfeited(self, state: PlainState, said: Message) -> StepResult[PlainState]:
        total = (state.total or 0.0) + FORFEIT
        lost = PlainState(
            state.seed, (*state.messages, said), state.num_steps + 1, True, total, state.live
        )
        return StepResult(lost, Rewards(agent={ROLE: Scored(FORFEIT)}), {"illegal": 1.0})

    def _action(self, reply: str) -> dict[str, Any]:
        """The action that a reply stands for; WireError if it stands for none."""
        if not self.action_field:
            return read_object(reply.strip(), "the reply").entries()
        if self.action_kind not in NUMBERS:
            return {self.action_field: clean(reply)}
        try:
            value = json.loads(reply.strip())
        except (ValueError, RecursionError):
            raise WireError(f"the reply is no {self.action_kind}") from None
        return {self.action_field: value}

    def _shown(self, given: Field) -> tuple[Message, ...]:
        """An observation as chat messages."""
        found = given.entries()
        name = self.config.observation_field
        if name:
            if name not in found:
                problem = f"observation_field: no '{name}' in it; {nearest(name, found)}"
                raise ConfigError(self.config.id, [problem])
            value = found[name]
            return (user(given[name].text() if isinstance(value, str) else _as_json(value)),)
        if _is_chat(found.get("messages")):
            return tuple(
                Message(one["role"].one_of(SPEAKERS), one["content"].text())  # type: ignore[arg-type]
                for one in given["messages"].items(MAX_MESSAGES)
            )
        return (user(_as_json({k: v for k, v in found.items() if v is not None})),)


def read_plain(address: Address, config: "OpenEnvConfig") -> PlainServer:
    """Read a server's schema of actions."""
    if config.role:
        problem = f"role: {address.url} has one role, '{ROLE}'; leave the key out"
        raise ConfigError(config.id, [problem])
    schema = get_json(address, "/schema")["action"]
    properties = schema["properties"].fields(MAX_NUMBERS)
    names = [name for name in properties if name != "metadata"]
    required = [one.text() for one in schema["required"].items(MAX_NUMBERS)]
    known = [name for name in required if name in names]
    name = config.action_field
    if name and name not in names:
        problem = f"action_field: {address.url} takes no '{name}'; {nearest(name, names)}"
        raise ConfigError(config.id, [problem])
    if not name and len(known) == 1:
        name = known[0]
    elif not name and not known and len(names) == 1:
        name = names[0]
    kind = properties[name]["type"].value if name else "object"
    kind = kind if isinstance(kind, str) else "string"
    if kind in ("object", "array"):
        name = ""
    return PlainServer(address.url, name, kind, config)


def plain_seed(task_seed: int, seed: int) -> int:
    """The seed that a server is given."""
    return derive_seed("openenv", task_seed, seed) % MAX_SEED


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and one.keys() >= {"role", "content"} for one in value)
    )


def _as_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        raise WireError(f"an observation has {len(text)} characters; at most {MAX_TEXT} allowed")
    return clean(text)


def _is_done(data: Field) -> bool:
    return data["done"].flag() if data.has("done") else False


def _reward_of(given: Field) -> float | None:
    if isinstance(given.value, bool):
        return float(given.value)
    return None if given.value is None else given.number()
