"""Reward shaping of debates: the score of an answer, later scores, and influence on other roles.

Plain numbers, after Park et al. (2025). A score measures whether an answer is correct, not whether
it helped other roles. An answer therefore also gets a share of all later scores, and bonuses or
penalties for switching to a side and for making others switch to it.

Definitions, in round t:

- *Right* is a score of at least `right_at`, *wrong* a lower one; an answer without a score is
  neither.
- *The majority* of a role is the side of more than half of the other roles with a score. The role
  itself does not count, so each of two roles can follow the other.
- *Following* means to be on the side of the majority of round t - 1 now, but not in round t - 1. A
  role without an answer in round t - 1 can follow a right majority, but not a wrong one.
- *Leading* means to be on the side to which other roles switch between rounds t and t + 1. It
  counts as a share of the other roles with a score in both rounds.

All answers of one round count as simultaneous. A wrong majority need not agree on one answer, as
only scores are known. The cause of a switch is unknown too, so all roles on that side get the
bonus.
"""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from pettingllms.algos.credit import mean
from pettingllms.config import AlgoConfig

Round = Mapping[str, float | None]
"""Score of each role in one round; None if it gave no answer that was scored. Roles that did not
act or whose score failed are absent."""


class DebateConfig(AlgoConfig):
    """Options of debate."""

    gamma: float = Field(default=0.3, ge=0, le=1)
    """Discount of the mean score of all roles in later rounds; 0 to ignore later rounds."""
    right_at: float = 0.5
    """Minimum score of a correct answer."""
    follow_right: float = Field(default=0.1, ge=0)
    """Bonus for switching to a majority that was right in the previous round."""
    follow_wrong: float = Field(default=0.1, ge=0)
    """Penalty for leaving a right answer for a majority that was wrong in the previous round."""
    lead_right: float = Field(default=0.1, ge=0)
    """Bonus for a right answer, times the share of other roles that switch from wrong to right
    next."""
    lead_wrong: float = Field(default=0.1, ge=0)
    """Penalty for a wrong answer, times the share of other roles that switch from right to wrong
    next."""


def shaped_score(rounds: Sequence[Round], role: str, at: int, config: DebateConfig) -> float | None:
    """The shaped score of one answer; None if neither it nor any later answer that counts has a
    score."""
    own = rounds[at][role]
    scores = [*([] if own is None else [own]), *later_scores(rounds, at, config.gamma)]
    if not scores:
        return None
    bonuses = (following(rounds, role, at, config), leading(rounds, role, at, config))
    return math.fsum([*scores, *bonuses])


def later_scores(rounds: Sequence[Round], at: int, gamma: float) -> list[float]:
    """For each later round k with scores, gamma^(k - t) times their mean over all roles."""
    if not gamma:
        return []
    later = enumerate(rounds[at + 1 :], start=1)
    return [gamma**ahead * mean(scores) for ahead, after in later if (scores := _scores(after))]


def majority(answers: Round, excluded: str, right_at: float) -> bool | None:
    """Whether most other roles were right; None for a tie or if no other role has a score."""
    others = {role: score for role, score in answers.items() if role != excluded}
    votes = [score >= right_at for score in _scores(others)]
    num_right, num_wrong = votes.count(True), votes.count(False)
    return None if num_right == num_wrong else num_right > num_wrong


def following(rounds: Sequence[Round], role: str, at: int, config: DebateConfig) -> float:
    """`follow_right` or minus `follow_wrong` for switching to the majority of the previous
    round."""
    now = rounds[at][role]
    if at == 0 or now is None or role not in rounds[at - 1]:
        return 0.0
    side = majority(rounds[at - 1], role, config.right_at)
    before = rounds[at - 1][role]
    was_right = before is not None and before >= config.right_at
    if side is None or was_right == side or (now >= config.right_at) != side:
        return 0.0
    return config.follow_right if side else -config.follow_wrong


def leading(rounds: Sequence[Round], role: str, at: int, config: DebateConfig) -> float:
    """`lead_right` or minus `lead_wrong`, times the share of other roles that switch next."""
    own = rounds[at][role]
    if own is None or at + 1 == len(rounds):
        return 0.0
    side = own >= config.right_at
    switched = [
        (before >= config.right_at) != side and (after >= config.right_at) == side
        for other, before in rounds[at].items()
        if other != role and before is not None and (after := rounds[at + 1].get(other)) is not None
    ]
    if not any(switched):
        return 0.0
    share = switched.count(True) / len(switched)
    return share * (config.lead_right if side else -config.lead_wrong)


def _scores(a_round: Round) -> list[float]:
    return [score for score in a_round.values() if score is not None]
