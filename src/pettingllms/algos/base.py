"""The contract of algorithms: episodes in, groups out, an advantage on every trained turn."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

from pettingllms.algos.credit import role_reward
from pettingllms.algos.influence import shape_episodes
from pettingllms.config import AlgoConfig, RewardConfig
from pettingllms.errors import ConfigError, nearest
from pettingllms.types import Episode, Group, Member, Scored, Turn

Need = Literal["forks", "replays", "silence", "values", "centralized"]
Mixer = Literal["sum", "monotonic"]


class Algorithm(ABC):
    """Groups the turns whose rewards are compared, and computes their advantages.

    Failed turns and turns of policies that are not trained belong to no group. They are excluded
    from training and from baselines.
    """

    Config: ClassVar[type[AlgoConfig]] = AlgoConfig
    """Class of the options under [algo] in a configuration file."""
    config: AlgoConfig
    """The options. Subclasses with further options annotate this with their config class."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What a run must provide: sibling replies in forks, replays of a finished episode, replays
    with a silent role, values of a critic, and observations of a centralized critic."""
    bootstraps: ClassVar[bool] = False
    """Whether it bootstraps from a critic's value where a limit cut an episode
    (rollout.on_limit)."""
    mixer: ClassVar[Mixer | None] = None
    """How the values of the roles are mixed into the value of the team; None for no mixing."""
    team_only: ClassVar[bool] = False
    """Whether it reads only team rewards."""
    min_samples: ClassVar[int] = 2
    """Samples per task (in a tree: per decision) that a comparison needs."""
    min_members: ClassVar[int] = 2
    """Members that a group needs. Turns of smaller groups are not trained on."""

    def __init__(
        self,
        config: AlgoConfig | None = None,
        reward: RewardConfig | None = None,
        policies: frozenset[str] | None = None,
    ) -> None:
        self.config = config or self.Config()
        self.reward = reward or RewardConfig()
        self.policies = policies
        """Names of the policies that are trained now; None for all."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given: Any = cls.needs
        needs = {given} if isinstance(given, str) else set(given)
        for unknown in sorted(needs - set(get_args(Need))):
            raise TypeError(
                f"{cls.__name__}.needs has unknown '{unknown}'; {nearest(unknown, get_args(Need))}"
            )

    @classmethod
    def rollout_type(cls) -> Literal["linear", "tree", "replay"]:
        """The type of rollouts that the algorithm needs."""
        if "replays" in cls.needs:
            return "replay"
        return "tree" if "forks" in cls.needs else "linear"

    @abstractmethod
    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        """Group the turns that are compared with each other, with their rewards or returns."""

    @abstractmethod
    def advantages(self, group: Group) -> list[float]:
        """The advantage of each member of a group."""

    def assign(self, episodes: Sequence[Episode]) -> list[Group]:
        """Write the advantage of every trained turn, and None to all others."""
        self.clear(episodes)
        given: Any = self.groups(self.shaped(episodes))
        if not isinstance(given, list) or not all(isinstance(one, Group) for one in given):
            raise self._wrong("groups", f"{given!r:.60}; expected a list of Group")
        groups: list[Group] = given
        for group in groups:
            for member, advantage in zip(
                group.members, self._checked_advantages(group), strict=True
            ):
                for turn in member.turns:
                    if turn.credit.advantage is not None:
                        raise self._wrong(
                            "groups",
                            f"a turn of '{turn.role}' twice; expected each turn at most once",
                        )
                    turn.credit.advantage = advantage
        self.update(groups)
        return groups

    def flat_tasks(self, episodes: Sequence[Episode]) -> list[str]:
        """Ids of the tasks in which every advantage is 0; writes nothing. Nothing can be learned
        from them, for example because all rewards are equal."""
        useful: set[int] = set()
        for group in self.groups(self.shaped(episodes)):
            advantages = self._checked_advantages(group)
            for member, advantage in zip(group.members, advantages, strict=True):
                useful |= {id(turn) for turn in member.turns if advantage}
        found: dict[str, bool] = {}
        for episode in episodes:
            is_flat = not any(id(turn) in useful for turn in episode.turns)
            found[episode.task.id] = found.get(episode.task.id, True) and is_flat
        return [task for task, is_flat in found.items() if is_flat]

    def _checked_advantages(self, group: Group) -> list[float]:
        """The advantages of a group, checked to be finite numbers, one per member."""
        given: Any = self.advantages(group)
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise self._wrong("advantages", f"{given!r:.60}; expected a list of numbers")
        found = list(given)
        if len(found) != len(group.members):
            raise self._wrong(
                "advantages",
                f"{len(found)} numbers; expected {len(group.members)}, one per member of the group",
            )
        if wrong := [one for one in found if not isinstance(one, Real) or not math.isfinite(one)]:
            raise self._wrong("advantages", f"{wrong[0]!r:.60}; expected finite numbers")
        return [float(one) for one in found]

    def _wrong(self, method: str, what: str) -> ConfigError:
        return ConfigError(f"algorithm {type(self).__name__}", [f"{method}() gave {what}"])

    def shaped(self, episodes: Sequence[Episode]) -> Sequence[Episode]:
        """The episodes with the same turns, and with process rewards after influence shaping."""
        options = self.reward.influence
        return episodes if options is None else shape_episodes(episodes, options)

    def clear(self, episodes: Sequence[Episode]) -> None:
        """Reset the advantages and value targets of all turns."""
        for episode in episodes:
            for turn in episode.turns:
                turn.credit.advantage = turn.credit.advantages = turn.credit.returns = None

    def joint_actions(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        """The turns that a critic values, grouped into the joint actions that a mixing critic
        mixes."""
        return [
            [turn] for episode in episodes for turn in episode.main_turns() if self.learns(turn)
        ]

    @classmethod
    def one_critic(cls) -> bool:
        """Whether all roles share one critic."""
        return "centralized" in cls.needs or cls.mixer is not None

    def update(self, groups: Sequence[Group]) -> None:  # noqa: B027 - most algorithms are stateless
        """Update state such as running baselines after a batch."""

    def state(self) -> dict[str, float]:
        """State to save in checkpoints."""
        return {}

    def load_state(self, state: Mapping[str, float]) -> None:  # noqa: B027 - as above
        """Restore the state of a checkpoint."""

    def learns(self, turn: Turn) -> bool:
        """Whether a turn can be trained on: it did not fail, its policy is trained and sampled it,
        and no schema constrained the sampling."""
        trained = self.policies is None or turn.policy in self.policies
        written = turn.policy_version is not None and not turn.guided
        return trained and turn.credit.failure is None and written

    def role_returns(self, episodes: Iterable[Episode]) -> Iterator[tuple[Episode, str, Member]]:
        """The trainable turns of each role on the main branch of each episode, with its return.

        Turns outside the main branch did not influence its return.
        """
        for episode in episodes:
            for role, turns in self.turns_by_role(episode).items():
                reward = role_reward(episode, role, self.reward)
                if isinstance(reward, Scored):
                    yield episode, role, Member(turns, reward.value)

    def turns_by_role(self, episode: Episode) -> dict[str, list[Turn]]:
        """The trainable turns of the main branch, by role."""
        found: dict[str, list[Turn]] = {}
        for turn in episode.main_turns():
            if self.learns(turn):
                found.setdefault(turn.role, []).append(turn)
        return found

    def group_episodes(
        self, episodes: Iterable[Episode], key: Callable[[Episode, str], tuple[Hashable, ...]]
    ) -> list[Group]:
        """Group the turns and return of each role in each episode by a key.

        A group needs `min_members` episodes: several roles of one episode are no comparison.
        """
        parts = list(self.role_returns(episodes))
        ids: dict[tuple[Hashable, ...], set[str]] = {}
        for episode, role, _ in parts:
            ids.setdefault(key(episode, role), set()).add(episode.id)
        groups = self.grouped((key(episode, role), part) for episode, role, part in parts)
        return [group for group in groups if len(ids[group.key]) >= self.min_members]

    def grouped(self, parts: Iterable[tuple[tuple[Hashable, ...], Member]]) -> list[Group]:
        """Group members by key, and drop groups with fewer than `min_members`."""
        groups: dict[tuple[Hashable, ...], Group] = {}
        for key, member in parts:
            groups.setdefault(key, Group(key, [])).members.append(member)
        return [group for group in groups.values() if len(group.members) >= self.min_members]


def task_key(episode: Episode) -> tuple[Hashable, ...]:
    """Equal for episodes of the same task and seed, which start from the same state."""
    return episode.env, episode.task.id, episode.seed


def reward_list(group: Group) -> list[float]:
    """The rewards of a group's members."""
    return [member.reward for member in group.members]
