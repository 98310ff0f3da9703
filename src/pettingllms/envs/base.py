"""The environment contract: a pure state machine over immutable states.

`step` returns a new state and changes nothing, so a rollout can fork an episode anywhere: sibling
replies are stepped from the same state and cannot affect each other. Environment authors see
messages and replies, never tokens, models or engines.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from pettingllms.config import EnvConfig
from pettingllms.errors import UnknownNameError, nearest
from pettingllms.types import (
    NO_REWARDS,
    Failed,
    Message,
    Reward,
    Rewards,
    Scored,
    Submission,
    Task,
    system,
    user,
)

StateT = TypeVar("StateT")
ConfigT = TypeVar("ConfigT", bound=EnvConfig)
Split = Literal["train", "test"]
"""`train`: tasks to train on. `test`: tasks to evaluate on."""
FRACTION = re.compile(r"0(\.[0-9]+)?|1(\.0+)?")
ScriptedPlayer = Callable[[Any, Any, str, random.Random], str]
"""A scripted player: maps environment, state, role and random generator to a reply."""


@dataclass(frozen=True, slots=True)
class StepResult(Generic[StateT]):
    """The result of one transition: next state, rewards, and metrics to log."""

    state: StateT
    rewards: Rewards = NO_REWARDS
    metrics: Mapping[str, float] = field(default_factory=dict)
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    """Submissions to the judge, by role, or under `TEAM` for joint work. The judge's scores become
    agent or team rewards of this step."""


BOOLEAN_TYPES = (bool, np.bool_)
"""Types that `success` may return. Comparisons of numpy values yield `np.bool_`."""


def successes(env: "Environment[Any, Any]", end: Any) -> dict[str, bool]:
    """`success` for every role at the final state. Raises TypeError if a value is not boolean."""
    found: dict[str, Any] = {role: env.success(end, role) for role in env.roles}
    for role, value in found.items():
        if not isinstance(value, BOOLEAN_TYPES):
            raise TypeError(f"success for '{role}' is {value!r:.60}, not True or False")
    return {role: bool(value) for role, value in found.items()}


def observation(env: "Environment[Any, Any]", state: Any, role: str) -> tuple[Message, ...]:
    """What a role is shown: `observe`, with the role's prompt of env.system_prompts, if any."""
    messages = tuple(env.observe(state, role))
    prompt = env.config.system_prompts.get(role)
    if prompt is None:
        return messages
    has_own = messages and getattr(messages[0], "speaker", "") == "system"
    return (system(prompt), *(messages[1:] if has_own else messages))


class Environment(ABC, Generic[StateT, ConfigT]):
    """Rules, prompts and rewards of one game or task family.

    An episode starts with `reset`. Then `acting` names the roles to act, `observe` gives each of
    them its observation, and `step` maps their replies (the actions) to a new state and rewards.
    The episode ends when `acting` returns no role.

    States must be immutable, picklable and comparable by value. A frozen dataclass of numbers,
    strings and tuples meets all three. `pettingllms.check_env` tests the whole contract.
    """

    id: str
    """Name and version. Raise the version when a change could alter training results."""
    Config: ClassVar[type[EnvConfig]] = EnvConfig
    """Options that a config file may set under [env]."""
    players: Mapping[str, ScriptedPlayer] = {}
    """Scripted players by name. One must be called `random`."""
    late_rewards: bool = False
    """Whether the reward for a reply may arrive in a later step, such as a team reward at the end
    of the episode. If True, tree rollouts continue every sibling to the end of the episode. If
    False, they compare siblings by the rewards of that step."""
    limit_reward: float = 0.0
    """Reward for an episode truncated at a limit (rollout.on_limit), unless env.limit_reward is
    set. It must not exceed any regular final reward, or a losing policy would learn to run into
    the limit. `check_env` tests this."""
    limit_level: Literal["agent", "team"] = "agent"
    """Who receives `limit_reward`. `team`: all roles, as a team reward, for cooperative games.
    `agent`: the roles whose replies were truncated, or all roles if the episode was."""
    can_fork: bool = True
    """Whether several branches can continue from the same state."""
    has_centralized_observation: bool = True
    """Whether `centralized_observation` is defined. Centralized critics need it."""
    judged: bool = False
    """Whether a judge assigns the rewards. If no judge is configured, the environment's own `rule`
    is the judge."""
    submits: bool = False
    """Whether steps hand submissions to a judge. Environments that are `judged` always do."""
    rule_parts: tuple[str, ...] = ()
    """Criteria that `rule` can score separately. A judge may be configured to use one of them."""
    blocking: bool = False
    """Whether a step waits for something external, such as a process or a socket."""
    runs_programs: bool = False
    """Whether a step may run model-generated code. Such code runs only in the sandbox."""

    def __init__(self, config: ConfigT | None = None) -> None:
        self.config: ConfigT = config or self.Config(id=self.id)  # type: ignore[assignment]

    @classmethod
    def create(cls, config: ConfigT) -> "Environment[Any, Any]":
        """Create the environment for a config: with all roles, or the solo form."""
        env: Environment[Any, Any] = cls(config)
        return env.solo() if config.solo else env

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """All roles, in a fixed order."""

    @property
    def image_roles(self) -> tuple[str, ...]:
        """Roles whose observations contain images. Their policies must be VLMs."""
        return ()

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split. Deterministic; no task may be in both splits."""

    @abstractmethod
    def reset(self, task: Task, seed: int) -> StateT:
        """The initial state of an episode. The same task and seed give the same state."""

    @abstractmethod
    def acting(self, state: StateT) -> tuple[str, ...]:
        """Roles to act now. One: sequential move. Several: simultaneous. None: episode over."""

    @abstractmethod
    def observe(self, state: StateT, role: str) -> Sequence[Message]:
        """The role's observation, as messages. It must not reveal hidden information."""

    @abstractmethod
    def step(self, state: StateT, replies: Mapping[str, str]) -> StepResult[StateT]:
        """One transition: apply the replies of all acting roles. Must accept any string."""

    @abstractmethod
    def success(self, state: StateT, role: str) -> bool:
        """Whether the role reached its goal in a finished episode.

        Evaluation reports the success rate and a curriculum may use it. It is not a reward.
        """

    def answer(self, state: StateT, role: str) -> str | None:
        """The final answer of a finished episode in canonical form, for majority voting.

        None if answers cannot be compared across episodes.
        """
        return None

    def rule(self, submission: Submission, part: str = "") -> Reward:
        """Score a submission from 0 to 1 by a programmatic rule: a judge without a model.

        `part` is one of `rule_parts`; an empty string combines all of them.
        """
        return Failed(f"'{self.id}' has no rule; configure another judge", "judge")

    def limit_rewards(self, roles: Sequence[str]) -> Rewards:
        """Rewards of an episode truncated at a limit; `roles` are those that caused it."""
        given = self.config.limit_reward
        reward = Scored(self.limit_reward if given is None else given)
        if self.limit_level == "team":
            return Rewards(team=reward)
        return Rewards(agent=dict.fromkeys(roles, reward))

    def describe_limit(self, on_limit: str) -> str:
        """One sentence on how truncated episodes are rewarded, shown when a run starts."""
        if on_limit == "exclude":
            return "episodes truncated at a limit are excluded from training"
        if on_limit == "bootstrap":
            return "episodes truncated at a limit are bootstrapped with the critic's value"
        shared = self.limit_level == "team"
        who = "the team" if shared else "each truncated role, or all roles if the episode was"
        given = self.config.limit_reward
        reward = self.limit_reward if given is None else given
        return f"episodes truncated at a limit give reward {reward:g} to {who} (env.limit_reward)"

    def centralized_observation(self, state: StateT) -> Sequence[Message]:
        """The observation of a centralized critic: all roles' observations, concatenated.

        Shared system texts and images appear once. No role is ever shown it.
        """
        seen = {role: self.observe(state, role) for role in self.roles}
        shared = dict.fromkeys(m.text for ms in seen.values() for m in ms if _is_system(m))
        views = [
            "\n".join([f"{role} sees:", *(m.text for m in messages if not _is_system(m))])
            for role, messages in seen.items()
        ]
        head = [system("\n\n".join(shared))] if shared else []
        images = dict.fromkeys(one for ms in seen.values() for m in ms for one in m.images)
        return [*head, user("\n\n".join(views), *images)]

    def solo(self) -> "Environment[Any, Any]":
        """The single-role form: one role acts and the scripted player `random` plays the others."""
        from pettingllms.envs.solo import SoloOneRole

        return SoloOneRole(self, "random")

    def player(self, name: str) -> ScriptedPlayer:
        """The scripted player of that name.

        `minimax~0.3` replies as `minimax` with probability 0.3 and as `random` otherwise.
        """
        known, tilde, fraction = name.partition("~")
        if known not in self.players:
            advice = nearest(known, self.players)
            raise UnknownNameError(f"'{self.id}' has no player called '{known}'; {advice}")
        if not tilde:
            return self.players[name]
        from pettingllms.envs.toolkit.noisy import noisy

        if not FRACTION.fullmatch(fraction):
            raise UnknownNameError(f"player '{name}': write a number from 0 to 1 after ~")
        return noisy(self.players[known], self.players["random"], float(fraction))

    def redeal(self, state: StateT, role: str, rng: random.Random) -> StateT:
        """Resample what is hidden from the role: another state with the same observation.

        `check_env` uses it to test that observations leak nothing. Environments without hidden
        information need not override it.
        """
        return state

    def silence(self, state: StateT, role: str) -> str:
        """The no-op reply, used when an episode is replayed without a role's contribution.

        Override it where an empty reply is illegal or loses the game: return a default move.
        """
        return ""

    def draw(self, state: StateT, role: str) -> str:
        """Render the role's view of the state for a terminal, in Rich markup."""
        from rich.markup import escape

        return escape(self.observe(state, role)[-1].text)

    def reply_of(self, typed: str) -> str:
        """Convert a person's terminal input to a reply."""
        return typed

    def refusal(self, state: StateT, role: str, reply: str) -> str | None:
        """Why a reply is illegal, so that a person can type another; None if it is legal.

        The default takes a trial step and reads the metric `illegal`.
        """
        if not self.can_fork or self.acting(state) != (role,):
            return None
        illegal = self.step(state, {role: reply}).metrics.get("illegal")
        return "this reply is illegal" if illegal else None

    def hint(self, state: StateT, role: str) -> str:
        """What a person who plays this role may type."""
        return "your reply"


def _is_system(message: Message) -> bool:
    return message.speaker == "system"
