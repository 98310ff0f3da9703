"""The environment contract: a pure state machine over immutable states.

Because `step` changes nothing, a rollout can fork a play anywhere: siblings of one decision are
stepped from one state, and none of them can touch another. The author sees messages and replies:
no tokens, no model, no engine.
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
"""Tasks to learn from, and tasks to be measured by."""
SHARE = re.compile(r"0(\.[0-9]+)?|1(\.0+)?")
ScriptedPlayer = Callable[[Any, Any, str, random.Random], str]
"""A scripted player: environment, state, role and a source of chance in; a reply out."""


@dataclass(frozen=True, slots=True)
class StepResult(Generic[StateT]):
    """What one step gave: the next state, what was paid, and numbers worth a curve."""

    state: StateT
    rewards: Rewards = NO_REWARDS
    metrics: Mapping[str, float] = field(default_factory=dict)
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    """What is laid before a judge, by role, or by `TEAM` for what all made together. What it says
    is paid in this step, at the level of agent or team."""


YES_OR_NO = (bool, np.bool_)
"""What `success` may give; numpy's is what a comparison of its numbers gives."""


def successes(env: "Environment[Any, Any]", end: Any) -> dict[str, bool]:
    """For each role, whether it reached its aim; what is neither yes nor no would count as one."""
    found: dict[str, Any] = {role: env.success(end, role) for role in env.roles}
    for role, reached in found.items():
        if not isinstance(reached, YES_OR_NO):
            raise TypeError(f"success for '{role}' is {reached!r:.60}, not True or False")
    return {role: bool(reached) for role, reached in found.items()}


class Environment(ABC, Generic[StateT, ConfigT]):
    """Rules, prompts and rewards of one game or task family.

    States are immutable, compare by value and can be pickled: a frozen dataclass of numbers,
    strings and tuples is all of that. `pettingllms.check_env` tests the whole contract.
    """

    id: str
    """Name and version; the version is raised when learning results could change."""
    Config: ClassVar[type[EnvConfig]] = EnvConfig
    """The options that a configuration file may set under [env]."""
    players: Mapping[str, ScriptedPlayer] = {}
    """Scripted players by name; one is called `random`."""
    late_rewards: bool = False
    """True if rewards for a reply may come in a later step, such as a team reward at the end. Tree
    rollouts then play every sibling to the end; without it, a reply's own step tells its worth."""
    limit_reward: float = 0.0
    """Reward for an episode that a limit cuts (rollout.on_limit), unless env.limit_reward sets
    another. Declare one that no regular outcome falls below, or running into a limit would beat
    losing: `check_env` looks for that."""
    limit_level: Literal["agent", "team"] = "agent"
    """Who gets it. `team`: all roles, at the level of the team, for roles that succeed or fail
    together. `agent`: the roles whose replies were cut, or all roles if the episode was."""
    can_fork: bool = True
    """False if two plays cannot go on from one state."""
    can_show_all: bool = True
    """False if there is no telling what the whole team sees, so that `central` has no answer."""
    judged: bool = False
    """True if what a play is worth is for a judge to say: without one that is configured, the
    environment's own rule is the judge."""
    rule_parts: tuple[str, ...] = ()
    """What the rule looks at, by names that a judge may be told."""
    blocking: bool = False
    """True if a step waits for something outside, such as a process or a socket."""
    runs_programs: bool = False
    """True if what a role writes may be run, which is done in the sandbox alone."""

    def __init__(self, config: ConfigT | None = None) -> None:
        self.config: ConfigT = config or self.Config(id=self.id)  # type: ignore[assignment]

    @classmethod
    def create(cls, config: ConfigT) -> "Environment[Any, Any]":
        """The environment that a configuration asks for: the team, or one role alone."""
        env: Environment[Any, Any] = cls(config)
        return env.solo() if config.solo else env

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """The seats, in a fixed order."""

    @property
    def image_roles(self) -> tuple[str, ...]:
        """The roles that are shown images: only a policy that sees can play them."""
        return ()

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """The problems of a split: the same ones each time, and none in both splits."""

    @abstractmethod
    def reset(self, task: Task, seed: int) -> StateT:
        """The state that a play starts from. The same task and seed give the same state."""

    @abstractmethod
    def acting(self, state: StateT) -> tuple[str, ...]:
        """Roles that speak now: one, several at the same time, or none when the play is over."""

    @abstractmethod
    def observe(self, state: StateT, role: str) -> Sequence[Message]:
        """What the role is shown. Never what it must not know."""

    @abstractmethod
    def step(self, state: StateT, replies: Mapping[str, str]) -> StepResult[StateT]:
        """What follows when every acting role has replied. Any string is a legal reply."""

    @abstractmethod
    def success(self, state: StateT, role: str) -> bool:
        """Whether a finished play reached this role's aim. Evaluation reports it, and a curriculum
        may be moved by it; no reward is made of it."""

    def answer(self, state: StateT, role: str) -> str | None:
        """What a finished play came to, written alike wherever it is the same answer; None if this
        cannot be compared. Evaluation lets the answers of several plays vote."""
        return None

    def rule(self, submission: Submission, part: str = "") -> Reward:
        """What the environment's own rule says of an exhibit, from 0 to 1: a judge that needs no
        model. `part` is one of `rule_parts`; empty: all of them together."""
        return Failed(f"'{self.id}' has no rule to judge by", "judge")

    def limit_rewards(self, roles: Sequence[str]) -> Rewards:
        """The rewards of an episode that a limit cuts; `roles` are those whose doing it was."""
        given = self.config.limit_reward
        reward = Scored(self.limit_reward if given is None else given)
        if self.limit_level == "team":
            return Rewards(team=reward)
        return Rewards(agent=dict.fromkeys(roles, reward))

    def describe_limit(self, on_limit: str) -> str:
        """What an episode earns that a limit cuts, for whoever starts a run."""
        if on_limit == "exclude":
            return "an episode that a limit cuts is excluded from training"
        if on_limit == "bootstrap":
            return "an episode that a limit cuts counts by the critic's value where it was cut"
        shared = self.limit_level == "team"
        whose = "the team" if shared else "each role whose reply was cut, or all if the episode was"
        given = self.config.limit_reward
        reward = self.limit_reward if given is None else given
        return f"an episode that a limit cuts earns {reward:g} for {whose} (env.limit_reward)"

    def centralized(self, state: StateT) -> Sequence[Message]:
        """What a critic of the whole team is shown, and no role ever: all that the roles see, one
        after another. Shared system texts and images stand once."""
        seen = {role: self.observe(state, role) for role in self.roles}
        shared = dict.fromkeys(m.text for ms in seen.values() for m in ms if _sets_scene(m))
        views = [
            "\n".join([f"{role} sees:", *(m.text for m in messages if not _sets_scene(m))])
            for role, messages in seen.items()
        ]
        scene = [system("\n\n".join(shared))] if shared else []
        images = dict.fromkeys(one for ms in seen.values() for m in ms for one in m.images)
        return [*scene, user("\n\n".join(views), *images)]

    def solo(self) -> "Environment[Any, Any]":
        """The same environment for one role alone: the others are played by `random`."""
        from pettingllms.envs.solo import SoloOneRole

        return SoloOneRole(self, "random")

    def player(self, name: str) -> ScriptedPlayer:
        """The scripted player of that name. `minimax~0.3` is minimax in three replies of ten, and
        `random` in the others: strength by degrees."""
        known, tilde, share = name.partition("~")
        if known not in self.players:
            what = nearest(known, self.players)
            raise UnknownNameError(f"'{self.id}' has no player called '{known}'; {what}")
        if not tilde:
            return self.players[name]
        from pettingllms.envs.toolkit.noisy import noisy

        if not SHARE.fullmatch(share):
            raise UnknownNameError(f"player '{name}': after ~ comes a share from 0 to 1")
        return noisy(self.players[known], self.players["random"], float(share))

    def redeal(self, state: StateT, role: str, rng: random.Random) -> StateT:
        """Another state that the role cannot tell from this one: what it must not know, changed.

        `check_env` uses it to show that observations leak nothing. Games without hidden
        information leave it as it is.
        """
        return state

    def silence(self, state: StateT, role: str) -> str:
        """The reply that stands for saying nothing, when a play is replayed without a role.

        Override it where the empty reply does more than that: where it is refused and loses the
        game, say, give the move that needs no thought.
        """
        return ""

    def draw(self, state: StateT, role: str) -> str:
        """The state as the role may see it, for a person at a terminal, in Rich's markup."""
        from rich.markup import escape

        return escape(self.observe(state, role)[-1].text)

    def reply_of(self, typed: str) -> str:
        """The reply that a person at a terminal means by what was typed."""
        return typed

    def refusal(self, state: StateT, role: str, reply: str) -> str | None:
        """Why the rules would refuse a reply, for a person who may then type another; None if they
        would not. By default the metric `illegal` of a trial step tells."""
        if not self.can_fork or self.acting(state) != (role,):
            return None
        illegal = self.step(state, {role: reply}).metrics.get("illegal")
        return "the rules refuse it" if illegal else None

    def hint(self, state: StateT, role: str) -> str:
        """What a person who plays this role may type."""
        return "your reply"


def _sets_scene(message: Message) -> bool:
    return message.speaker == "system"
