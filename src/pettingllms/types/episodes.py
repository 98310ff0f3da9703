"""Tasks, turns, steps, episodes and groups: what happened, as plain data.

An episode is a tree of steps. A linear rollout gives a tree with one branch; a tree rollout gives a
trunk (the play that went on) with siblings, and with continuations that were played only to find
out what a sibling was worth. A replay rollout gives a trunk as linear rollouts do, and for each of
its turns other replies to the same prompt, each with a continuation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.types.rewards import NO_REWARDS, Failed, Rewards
from pettingllms.types.submissions import Submission
from pettingllms.types.turns import Turn


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `data` is JSON-like; `seed` makes what the problem leaves to chance."""

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """One transition of the environment: the replies that entered it and what it paid."""

    parent: int | None
    """Index of the step before it; None if it was played from the start."""
    turns: tuple[int, ...]
    """Indices of the turns whose replies entered, one for each acting role."""
    rewards: Rewards = NO_REWARDS
    metrics: Mapping[str, float] = field(default_factory=dict)
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    """What is laid before a judge, by role, or by `TEAM` for all of them."""
    limit: str = ""
    """The limit that cut the episode here. The environment made no such step; its rewards are those
    of rollout.on_limit."""
    final: bool = False
    """Whether the episode ended with this step: no role acts after it, or a limit cut it here."""


@dataclass(slots=True, eq=False)
class Episode:
    """All turns of one play of a task, as a tree of steps."""

    id: str
    env: str
    task: Task
    seed: int
    """Seed of the environment's chance. Episodes of one task and seed start from one state."""
    turns: list[Turn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    last: int | None = None
    """Index of the last step of the trunk."""
    success: Mapping[str, bool] = field(default_factory=dict)
    """For each role, whether its aim was reached on the trunk; empty if it did not end. If
    `best_of` is above 1, this is not the policy's success: read `sampled_success`."""
    best_of: int = 1
    """Siblings among which the trunk's replies were chosen by their rewards; 1: the trunk is an
    ordinary sample of the policies."""
    first_success: Mapping[str, float] = field(default_factory=dict)
    """For each role, the share of the first decision's siblings that reached its aim, each played
    to its end by ordinary sampling; only where the trunk is the best of several."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """For each role that came to one, the answer by which plays are compared; linear rollouts."""
    failure: Failed | None = None
    """Why the trunk stopped before its end, if so."""
    num_extra_tokens: int = 0
    """Tokens sampled only to find out what siblings were worth, or for replays."""
    dropped_tokens: dict[str, int] = field(default_factory=dict)
    """Those of them whose turns were not kept, by policy."""
    without: dict[str, int | Failed] = field(default_factory=dict)
    """For each role that the episode was replayed without: index of the replay's last step, or why
    it did not end."""

    def path(self, last: int | None, first: int | None = None) -> Iterator[int]:
        """Step indices from `last` back to `first` (or to the start), newest first."""
        at = last
        while at is not None:
            yield at
            if at == first:
                return
            at = self.steps[at].parent

    def main_branch(self) -> list[int]:
        """Step indices of the play that went on, oldest first."""
        return list(self.path(self.last))[::-1]

    def main_turns(self) -> list[Turn]:
        """The replies of the play that went on, oldest first."""
        return [self.turns[index] for at in self.main_branch() for index in self.steps[at].turns]

    def judged_by(self, turn: Turn) -> list[Step]:
        """The steps whose rewards this turn answers for: its own, then those played after it."""
        if turn.links.step is None:
            return []
        return [self.steps[at] for at in self.path(turn.links.last, turn.links.step)][::-1]

    def sampled_success(self, role: str) -> float | None:
        """How often ordinary samples of the policies reached the role's aim; 0 if the episode
        failed, None if only the best of several siblings is known."""
        if self.best_of > 1:
            return self.first_success.get(role)
        return float(self.success.get(role, False))

    @property
    def limit(self) -> str:
        """The limit that cut the episode; empty if none did, or if its cut is a failure."""
        return "" if self.last is None else self.steps[self.last].limit

    @property
    def is_bootstrapped(self) -> bool:
        """Whether a critic's value stands for what would have come after the cut."""
        step = None if self.last is None else self.steps[self.last]
        return step is not None and bool(step.limit) and step.rewards == NO_REWARDS

    @property
    def num_tokens(self) -> int:
        """Tokens of the turns that this episode holds."""
        return sum(turn.num_tokens for turn in self.turns)


@dataclass(slots=True)
class Member:
    """One thing that a group compares: a reward, and the turns that answer for it."""

    turns: list[Turn]
    reward: float


@dataclass(slots=True)
class Group:
    """The turns whose rewards are compared with each other."""

    key: tuple[object, ...]
    members: list[Member]
