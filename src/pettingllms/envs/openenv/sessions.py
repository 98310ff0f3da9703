"""Episodes of an environment as sessions of a server: what a reset and a step answer.

A session plays one role, several, or all of them; scripted co-players play the others. It sees only
the observations of its roles. Everything here is plain JSON, without the `openenv` package.
"""

import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pettingllms.envs.base import ScriptedPlayer, StepResult, successes
from pettingllms.envs.openenv.fields import Field, clean
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.wire import (
    ALL_ROLES,
    KEY,
    MAX_NAME,
    MAX_REPLY,
    MAX_ROLES,
    SEEDS,
    SPLITS,
    UNKNOWN_STATE,
    by_role,
    finite,
    info_to_json,
    messages_to_json,
    rewards_to_json,
    submission_to_json,
)
from pettingllms.errors import PettingError, WireError
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    NO_REWARDS,
    TEAM,
    Failed,
    Reward,
    Rewards,
    Scored,
    Submission,
    Task,
    total,
)

MAX_STATES = 256
"""States that a session keeps; older ones are dropped, and the client replays."""
MAX_CO_STEPS = 10_000
"""Steps of co-players in a row before an episode is considered endless."""
RANDOM = "random"
CLOSED = "this session is closed, or was idle for too long; connect again, and reset"
ResultT = TypeVar("ResultT")
Answer = dict[str, Any]


@dataclass(slots=True)
class _Episode:
    """What a reset decided."""

    task: Task
    seed: int
    id: str
    roles: tuple[str, ...]
    co_players: Mapping[str, ScriptedPlayer]
    states: "OrderedDict[int, _Node]" = field(default_factory=OrderedDict)
    num_states: int = 0
    num_steps: int = 0
    latest: int = 0


@dataclass(slots=True)
class _Node:
    """A state, the number of steps before it, and replies that wait for those of other roles."""

    state: Any
    num_steps: int
    replies: dict[str, str] = field(default_factory=dict)


class PlaySession:
    """The episodes of one connection, one after the other. Not thread-safe."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._env = served.env
        self._episode: _Episode | None = None
        self._closed = False

    def close(self) -> None:
        """Drop the episode; later requests are errors."""
        self._closed, self._episode = True, None

    def describe(self) -> Answer:
        """The answer to a `state` message. It has no part of the environment's state."""
        at = self._episode
        return {
            "episode_id": None if at is None else at.id,
            "step_count": 0 if at is None else at.num_steps,
            KEY: info_to_json(self._served.info),
        }

    def reset(self, data: Mapping[str, Any]) -> Answer:
        """Start an episode."""
        self._require_open()
        given = Field("reset", dict(data))
        known = ("seed", "episode_id", "split", "task", "role", "co_players")
        _check_keys(given, known)
        seed = given["seed"].whole(0, SEEDS) if given.has("seed") else random.getrandbits(63)
        split = given["split"].one_of(SPLITS) if given.has("split") else SPLITS[0]
        tasks = self._served.tasks[split]
        at = given["task"].whole(0, len(tasks)) if given.has("task") else seed % len(tasks)
        name = given["episode_id"].text(MAX_NAME) if given.has("episode_id") else f"{seed:x}"
        roles = self._roles(given["role"])
        co_players = self._co_players(given["co_players"], roles)
        episode = _Episode(tasks[at], seed, name, roles, co_players)
        state = self._served.call("reset", self._env.reset, episode.task, seed)
        state, results = self._play_others(episode, state, 0)
        self._episode = episode
        return self._answer(episode, self._keep(episode, _Node(state, len(results))), results, ())

    def step(self, data: Mapping[str, Any]) -> Answer:
        """Take replies: one of a role, or several. The environment steps when all are there."""
        self._require_open()
        given = Field("action", dict(data))
        _check_keys(given, ("text", "role", "replies", "state", "ask"))
        if self._episode is None:
            raise WireError("there is no episode; send a reset first, on the same connection")
        episode = self._episode
        node, number = self._node(episode, given["state"])
        waiting = self._waiting(episode, node)
        if given.has("ask"):
            reply = self._ask(episode, node, given["ask"])
            return self._answer(episode, number, [], ()) | {"reply": reply}
        if not waiting:
            raise WireError("the episode is over; send a reset")
        replies = _replies_in(given, waiting)
        if len(replies) < len(waiting):
            node.replies.update(replies)
            return self._answer(episode, number, [], ())
        replies = {**node.replies, **replies}
        state, first = self._step_once(episode, node.state, node.num_steps, replies)
        state, later = self._play_others(episode, state, node.num_steps + 1)
        results = [first, *later]
        episode.num_steps += 1
        node.replies.clear()
        after = _Node(state, node.num_steps + len(results))
        if not self._env.can_fork:
            episode.states.clear()
        return self._answer(episode, self._keep(episode, after), results, tuple(replies))

    def _require_open(self) -> None:
        if self._closed:
            raise WireError(CLOSED)

    def _roles(self, given: Field) -> tuple[str, ...]:
        known = tuple(self._env.roles)
        if given.value is None:
            return known[:1]
        if given.value == ALL_ROLES:
            return known
        if isinstance(given.value, str):
            return (given.one_of(known),)
        chosen = [one.one_of(known) for one in given.items(MAX_ROLES)]
        if not chosen or len(set(chosen)) != len(chosen):
            given.reject(f"one of {', '.join(known)}; or a list of them, each once; or '*' for all")
        return tuple(role for role in known if role in chosen)

    def _co_players(self, given: Field, roles: Sequence[str]) -> dict[str, ScriptedPlayer]:
        others = [role for role in self._env.roles if role not in roles]
        names: dict[str, str] = {}
        if isinstance(given.value, dict):
            names = {r: f.text(MAX_NAME) for r, f in by_role(given, others or [""]).items()}
        elif given.value is not None:
            names = dict.fromkeys(others, given.text(MAX_NAME))
        return {role: self._player(names.get(role, RANDOM)) for role in others}

    def _player(self, name: str) -> ScriptedPlayer:
        try:
            return self._env.player(name)
        except PettingError as error:
            raise WireError(clean(str(error))) from None

    def _node(self, episode: _Episode, given: Field) -> tuple[_Node, int]:
        number = given.whole(0, 2**53) if given.value is not None else episode.latest
        if number not in episode.states:
            why = (
                f"the session keeps its last {MAX_STATES} states"
                if self._env.can_fork
                else "this environment cannot fork, so only its latest state can be stepped"
            )
            raise WireError(f"{UNKNOWN_STATE} {number}: {why}; reset, and replay the replies")
        return episode.states[number], number

    def _keep(self, episode: _Episode, node: _Node) -> int:
        number = episode.latest = episode.num_states
        episode.states[number] = node
        episode.num_states += 1
        if len(episode.states) > MAX_STATES:
            episode.states.popitem(last=False)
        return number

    def _acting(self, state: Any) -> tuple[str, ...]:
        return tuple(self._served.call("acting", self._env.acting, state))

    def _waiting(self, episode: _Episode, node: _Node) -> tuple[str, ...]:
        """Roles of the session whose replies are missing."""
        acting = self._acting(node.state)
        return tuple(r for r in acting if r in episode.roles and r not in node.replies)

    def _ask(self, episode: _Episode, node: _Node, given: Field) -> str:
        """The reply of a scripted player for a role of the session."""
        _check_keys(given, ("player", "role", "seed"))
        role = given["role"].one_of(self._waiting(episode, node) or episode.roles)
        player = self._player(given["player"].text(MAX_NAME))
        rng = random.Random(given["seed"].whole(0, SEEDS) if given.has("seed") else None)
        return clean(self._served.call("the player", player, self._env, node.state, role, rng))

    def _play_others(
        self, episode: _Episode, state: Any, num_steps: int
    ) -> tuple[Any, list[StepResult[Any]]]:
        """Let co-players move until a role of the session has to, or the episode is over."""
        results: list[StepResult[Any]] = []
        while (acting := self._acting(state)) and not set(acting) & set(episode.roles):
            if len(results) == MAX_CO_STEPS:
                raise PettingError(
                    f"co-players made {MAX_CO_STEPS} steps without a turn of "
                    f"{', '.join(episode.roles)}; play another role, or set other co_players"
                )
            state, result = self._step_once(episode, state, num_steps + len(results), {})
            results.append(result)
        return state, results

    def _step_once(
        self, episode: _Episode, state: Any, num_steps: int, replies: Mapping[str, str]
    ) -> tuple[Any, StepResult[Any]]:
        given = dict(replies)
        for role in self._acting(state):
            if role not in given:
                rng = random.Random(derive_seed("co_player", episode.seed, num_steps, role))
                player = episode.co_players[role]
                given[role] = self._served.call("a co-player", player, self._env, state, role, rng)
        result = self._served.call("step", self._env.step, state, given)
        return result.state, result

    def _answer(
        self,
        episode: _Episode,
        number: int,
        results: Sequence[StepResult[Any]],
        replied: Sequence[str],
    ) -> Answer:
        node = episode.states[number]
        waiting = self._waiting(episode, node)
        rewards = _rewards_of(episode.roles, replied, results)
        seen = {role: self._observe(node.state, role) for role in waiting}
        done = not waiting
        metrics = {name: value for one in reversed(results) for name, value in one.metrics.items()}
        answer: Answer = {
            "role": waiting[0] if waiting else "",
            "messages": seen[waiting[0]] if waiting else [],
            "acting": [*waiting],
            "observations": seen,
            "state": number,
            "rewards": rewards_to_json(rewards),
            "metrics": finite(metrics),
            "submissions": self._submissions(episode, results),
            "silence": self._silence(node.state, waiting),
            "reward": _scalar(rewards, episode.roles),
            "done": done,
        }
        return answer | self._ending(episode, node.state) if done else answer

    def _ending(self, episode: _Episode, state: Any) -> Answer:
        env, call = self._env, self._served.call
        success = call("success", successes, env, state)
        answers = {role: call("answer", env.answer, state, role) for role in episode.roles}
        return {
            "success": {role: success[role] for role in episode.roles},
            "answers": {role: clean(one) for role, one in answers.items() if one is not None},
        }

    def _observe(self, state: Any, role: str) -> list[dict[str, Any]]:
        return messages_to_json(self._served.call("observe", self._env.observe, state, role))

    def _silence(self, state: Any, roles: Sequence[str]) -> dict[str, str]:
        found = {r: self._served.call("silence", self._env.silence, state, r) for r in roles}
        return {role: clean(text) for role, text in found.items() if text}

    def _submissions(self, episode: _Episode, results: Sequence[StepResult[Any]]) -> Answer:
        return {
            role: submission_to_json(one, self._verdicts(one))
            for result in results
            for role, one in result.submissions.items()
            if role in (TEAM, *episode.roles)
        }

    def _verdicts(self, submission: Submission) -> dict[str, Reward]:
        return {part: self._verdict(submission, part) for part in ("", *self._env.rule_parts)}

    def _verdict(self, submission: Submission, part: str) -> Reward:
        try:
            return self._served.call("rule", partial(self._env.rule, submission, part))
        except PettingError as error:
            return Failed(str(error), "judge")


def _check_keys(given: Field, known: Sequence[str]) -> None:
    extra = [name for name in given.entries() if name not in known and name != "metadata"]
    if extra:
        raise WireError(
            f"{given.path} has the unknown key {extra[0]!a:.60}; known: {', '.join(known)}"
        )


def _replies_in(given: Field, waiting: Sequence[str]) -> dict[str, str]:
    """The replies of a step, of roles that have to reply."""
    if given.has("replies"):
        if given.has("text"):
            raise WireError("action has both text and replies; send one of them")
        replies = {
            role: one.text(MAX_REPLY) for role, one in by_role(given["replies"], waiting).items()
        }
        if not replies:
            given["replies"].reject(f"replies of {', '.join(waiting)}")
        return replies
    role = given["role"].one_of(waiting) if given.has("role") else waiting[0]
    return {role: given["text"].text(MAX_REPLY)}


def _rewards_of(
    roles: Sequence[str], replied: Sequence[str], results: Sequence[StepResult[Any]]
) -> Rewards:
    """Rewards of the roles of a session, summed over the steps until one of them acts again."""
    if not results:
        return NO_REWARDS
    process = {r: one for r, one in results[0].rewards.process.items() if r in replied}
    agent = {role: total(one.rewards.agent.get(role) for one in results) for role in roles}
    return Rewards(
        process=process,
        agent={role: one for role, one in agent.items() if one is not None},
        team=total(one.rewards.team for one in results),
    )


def _scalar(rewards: Rewards, roles: Sequence[str]) -> float | None:
    """The one number that OpenEnv has: of the only role, or of the team."""
    given = [rewards.team]
    if len(roles) == 1:
        given += [rewards.process.get(roles[0]), rewards.agent.get(roles[0])]
    found = total(given)
    return found.value if isinstance(found, Scored) else None
