"""Tasks, steps, episodes (trajectories) and groups, as plain data.

An episode is a tree of steps. A linear rollout produces a tree with one branch. A tree rollout
produces a main branch, sibling replies beside it, and continuations that estimate the return of a
sibling. A replay rollout produces a main branch as linear rollouts do, and for each of its turns
alternative replies to the same prompt, each with a continuation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.types.rewards import NO_REWARDS, Failed, Rewards, Submission
from pettingllms.types.turns import Turn


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `data` is JSON-like; `seed` determines its random parts."""

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """One transition of the environment: the replies that entered it and the rewards."""

    parent: int | None
    """Index of the previous step; None for the first step."""
    turns: tuple[int, ...]
    """Indices of the turns whose replies entered the step, one per acting role."""
    rewards: Rewards = NO_REWARDS
    metrics: Mapping[str, float] = field(default_factory=dict)
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    """Submissions to a judge, by role, or by `TEAM` for all roles together."""
    limit: str = ""
    """The limit that cut the episode here; empty for a step of the environment. Its rewards follow
    from rollout.on_limit."""
    final: bool = False
    """Whether the episode ended with this step: no role acts after it, or a limit cut it."""


@dataclass(slots=True, eq=False)
class Episode:
    """All turns from reset to end of one task (a trajectory), as a tree of steps."""

    id: str
    env: str
    task: Task
    seed: int
    """Seed of the environment. Episodes with the same task and seed share a start state."""
    turns: list[Turn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    last: int | None = None
    """Index of the last step of the main branch."""
    success: Mapping[str, bool] = field(default_factory=dict)
    """Success of each role on the main branch; empty if the branch did not end. If `best_of` is
    above 1, this is not the policy's success: read `sampled_success`."""
    best_of: int = 1
    """Number of siblings from which rewards selected each reply of the main branch; 1 if the main
    branch is an ordinary sample of the policies."""
    first_success: Mapping[str, float] = field(default_factory=dict)
    """Success rate of each role over the siblings of the first decision, each continued by ordinary
    sampling; only where the main branch is the best of several."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Final answer of each role that has one, for majority votes; linear rollouts only."""
    failure: Failed | None = None
    """Why the main branch stopped before its end; None if it did not."""
    num_extra_tokens: int = 0
    """Number of tokens sampled for continuations and replays."""
    dropped_tokens: dict[str, int] = field(default_factory=dict)
    """Those of them whose turns were not kept, by policy."""
    without: dict[str, int | Failed] = field(default_factory=dict)
    """For each role without which the episode was replayed: index of the last step of the replay,
    or why it failed."""

    def path(self, last: int | None, first: int | None = None) -> Iterator[int]:
        """Step indices from `last` back to `first` (or to the start), latest first."""
        at = last
        while at is not None:
            yield at
            if at == first:
                return
            at = self.steps[at].parent

    def main_branch(self) -> list[int]:
        """Step indices of the main branch, in order."""
        return list(self.path(self.last))[::-1]

    def main_turns(self) -> list[Turn]:
        """Turns of the main branch, in order."""
        return [self.turns[index] for at in self.main_branch() for index in self.steps[at].turns]

    def reward_steps(self, turn: Turn) -> list[Step]:
        """The steps whose rewards count toward the return of a turn: the step it entered, then all
        later steps of its branch."""
        if turn.links.step is None:
            return []
        return [self.steps[at] for at in self.path(turn.links.last, turn.links.step)][::-1]

    def sampled_success(self, role: str) -> float | None:
        """Success rate of the role under ordinary sampling; 0 if the episode failed, None if only
        the best of several siblings is known."""
        if self.best_of > 1:
            return self.first_success.get(role)
        return float(self.success.get(role, False))

    @property
    def limit(self) -> str:
        """The limit that cut the episode; empty if there was none, or if the cut is a failure."""
        return "" if self.last is None else self.steps[self.last].limit

    @property
    def is_bootstrapped(self) -> bool:
        """Whether a critic's value replaces the return after the cut (rollout.on_limit)."""
        step = None if self.last is None else self.steps[self.last]
        return step is not None and bool(step.limit) and step.rewards == NO_REWARDS

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens of all turns."""
        return sum(turn.num_tokens for turn in self.turns)


@dataclass(slots=True)
class Member:
    """One entry of a group: a reward (or return), and the turns that get its advantage."""

    turns: list[Turn]
    reward: float


@dataclass(slots=True)
class Group:
    """Turns whose rewards are compared with each other."""

    key: tuple[object, ...]
    members: list[Member]
