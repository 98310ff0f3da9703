"""The algorithm contract: episodes in, groups out, an advantage on every turn that learns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

from pettingllms.algos.credit import role_reward
from pettingllms.config import AlgoConfig, RewardConfig
from pettingllms.errors import ConfigError, nearest
from pettingllms.types import Episode, Group, Member, Scored, Turn

Need = Literal["forks", "replays", "silence", "values", "central"]
Mixer = Literal["sum", "monotonic"]


class Algorithm(ABC):
    """Says which turns are compared with each other, and what follows from the comparison.

    A turn that failed is in no group, and so is a turn of a policy that does not learn: neither is
    trained on, and neither moves anybody's baseline.
    """

    Config: ClassVar[type[AlgoConfig]] = AlgoConfig
    """The options that a configuration file may set under [algo]."""
    config: AlgoConfig
    """Those that are set. An algorithm with options of its own says here which class they have."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What a run must provide: siblings in forks of their own, replays of a finished episode,
    replays in which a role is silent, values of a critic, and for a critic of all roles what the
    whole team sees."""
    bootstraps: ClassVar[bool] = False
    """Whether a critic's value can stand for what a limit cut off (rollout.on_limit)."""
    mixer: ClassVar[Mixer | None] = None
    """How one critic makes the team's value of its roles', if it is trained on the team's."""
    min_samples: ClassVar[int] = 2
    """How often a task (or a decision, in a tree) must be sampled for a comparison."""
    min_members: ClassVar[int] = 2
    """Members that a group needs; the turns of a smaller one are not trained on."""

    def __init__(
        self,
        config: AlgoConfig | None = None,
        reward: RewardConfig | None = None,
        policies: frozenset[str] | None = None,
    ) -> None:
        self.config = config or self.Config()
        self.reward = reward or RewardConfig()
        self.policies = policies
        """Names of those that learn now; None: everybody."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given: Any = cls.needs
        needs = {given} if isinstance(given, str) else set(given)
        for unknown in sorted(needs - set(get_args(Need))):
            raise TypeError(f"{cls.__name__} needs '{unknown}'; {nearest(unknown, get_args(Need))}")

    @classmethod
    def rollout_type(cls) -> Literal["linear", "tree", "replay"]:
        """The rollouts that it reads."""
        if "replays" in cls.needs:
            return "replay"
        return "tree" if "forks" in cls.needs else "linear"

    @abstractmethod
    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        """The turns that are compared with each other, with the rewards they are compared by."""

    @abstractmethod
    def advantages(self, group: Group) -> list[float]:
        """One number for each member of a group."""

    def assign(self, episodes: Sequence[Episode]) -> list[Group]:
        """Write an advantage on every turn that is trained on, None on all others."""
        self.clear(episodes)
        given: Any = self.groups(episodes)
        if not isinstance(given, list) or not all(isinstance(one, Group) for one in given):
            raise self._wrong("groups", f"{given!r:.60}; give a list of Group")
        groups: list[Group] = given
        for group in groups:
            for member, advantage in zip(group.members, self._numbers(group), strict=True):
                for turn in member.turns:
                    if turn.credit.advantage is not None:
                        raise self._wrong("groups", f"a turn of '{turn.role}' twice; give it once")
                    turn.credit.advantage = advantage
        self.update(groups)
        return groups

    def _numbers(self, group: Group) -> list[float]:
        """The advantages of a group, held to what the contract says: what is no number would be
        skipped by learners, or written where nobody can read it."""
        given: Any = self.advantages(group)
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise self._wrong("advantages", f"{given!r:.60}; give a list of numbers")
        found = list(given)
        if len(found) != len(group.members):
            raise self._wrong(
                "advantages",
                f"{len(found)} numbers for a group of {len(group.members)}; give one for each",
            )
        if wrong := [one for one in found if not isinstance(one, Real) or not math.isfinite(one)]:
            raise self._wrong("advantages", f"{wrong[0]!r:.60}; give finite numbers")
        return [float(one) for one in found]

    def _wrong(self, method: str, what: str) -> ConfigError:
        return ConfigError(f"algorithm {type(self).__name__}", [f"{method}() gave {what}"])

    def clear(self, episodes: Sequence[Episode]) -> None:
        """Forget what an algorithm wrote."""
        for episode in episodes:
            for turn in episode.turns:
                turn.credit.advantage = turn.credit.advantages = turn.credit.returns = None

    def joint_actions(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        """The turns that a critic gives values to, those together that it mixes."""
        return [
            [turn] for episode in episodes for turn in episode.main_turns() if self.learns(turn)
        ]

    @classmethod
    def one_critic(cls) -> bool:
        """Whether one critic serves all roles."""
        return "central" in cls.needs or cls.mixer is not None

    def update(self, groups: Sequence[Group]) -> None:  # noqa: B027 - most have nothing to do
        """Learn from a batch what the next batch is compared with, for algorithms that do."""

    def state(self) -> dict[str, float]:
        """What must be saved with a run."""
        return {}

    def load_state(self, state: Mapping[str, float]) -> None:  # noqa: B027 - as above
        """Take up what a run saved."""

    def learns(self, turn: Turn) -> bool:
        """Whether a turn can be trained on at all: its policy learns, and wrote it freely."""
        trained = self.policies is None or turn.policy in self.policies
        written = turn.policy_version is not None and not turn.guided
        return trained and turn.credit.failure is None and written

    def plays(self, episodes: Iterable[Episode]) -> Iterator[tuple[Episode, str, Member]]:
        """Each role's part in each play: its turns, with what it was paid for the whole.

        Turns that were sampled beside the trunk of a tree have no part in how the trunk ended.
        """
        for episode in episodes:
            for role, turns in self.parts(episode).items():
                reward = role_reward(episode, role, self.reward)
                if isinstance(reward, Scored):
                    yield episode, role, Member(turns, reward.value)

    def parts(self, episode: Episode) -> dict[str, list[Turn]]:
        """The turns of the trunk that can be trained on, by role."""
        found: dict[str, list[Turn]] = {}
        for turn in episode.main_turns():
            if self.learns(turn):
                found.setdefault(turn.role, []).append(turn)
        return found

    def group_plays(
        self, episodes: Iterable[Episode], key: Callable[[Episode, str], tuple[Hashable, ...]]
    ) -> list[Group]:
        """Put each role's part in each play into the group of its key.

        What counts is how many plays are compared: the roles of one play are no comparison.
        """
        parts = list(self.plays(episodes))
        plays: dict[tuple[Hashable, ...], set[str]] = {}
        for episode, role, _ in parts:
            plays.setdefault(key(episode, role), set()).add(episode.id)
        groups = self.grouped((key(episode, role), part) for episode, role, part in parts)
        return [group for group in groups if len(plays[group.key]) >= self.min_members]

    def grouped(self, parts: Iterable[tuple[tuple[Hashable, ...], Member]]) -> list[Group]:
        """Members by key, without the groups that are too small to compare anything."""
        groups: dict[tuple[Hashable, ...], Group] = {}
        for key, member in parts:
            groups.setdefault(key, Group(key, [])).members.append(member)
        return [group for group in groups.values() if len(group.members) >= self.min_members]


def problem(episode: Episode) -> tuple[Hashable, ...]:
    """What makes two episodes plays of the same problem: the task, and the chance in it."""
    return episode.env, episode.task.id, episode.seed


def reward_list(group: Group) -> list[float]:
    """The rewards that a group compares."""
    return [member.reward for member in group.members]
