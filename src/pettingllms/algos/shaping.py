"""Influence shaping: the score of an answer, later scores, and influence on other roles.

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
- *Going against the majority* means to have been on its side in round t - 1, but not now.
- *Leading* means to be on the side to which other roles switch between rounds t and t + 1. It
  counts as a share of the other roles with a score in both rounds. With `lead_opposite`, being on
  the side that they leave counts too.

All answers of one round count as simultaneous. A wrong majority need not agree on one answer, as
only scores are known. The cause of a switch is unknown too, so all roles on that side get the
bonus.
"""

import math
from collections.abc import Mapping, Sequence

from pettingllms.algos.credit import mean
from pettingllms.config import InfluenceConfig

Round = Mapping[str, float | None]
"""Score of each role in one round; None if it gave no answer that was scored. Roles that did not
act or whose score failed are absent."""


def shaped_score(
    rounds: Sequence[Round], role: str, at: int, config: InfluenceConfig
) -> float | None:
    """The shaped score of one answer; None if neither it nor any later answer that counts has a
    score."""
    own = rounds[at][role]
    scores = [*([] if own is None else [own]), *later_scores(rounds, at, config.gamma)]
    if not scores:
        return None
    bonuses = (following(rounds, role, at, config), leading(rounds, role, at, config))
    return math.fsum([*scores, *(config.alpha * bonus for bonus in bonuses)])


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


def following(rounds: Sequence[Round], role: str, at: int, config: InfluenceConfig) -> float:
    """The bonus or penalty for switching sides, by the majority of the previous round."""
    now = rounds[at][role]
    if at == 0 or now is None or role not in rounds[at - 1]:
        return 0.0
    side = majority(rounds[at - 1], role, config.right_at)
    before = rounds[at - 1][role]
    was_right = before is not None and before >= config.right_at
    is_right = now >= config.right_at
    if side is None or was_right == is_right:
        return 0.0
    if side == is_right:
        return config.follow_right if is_right else -config.follow_wrong
    if before is None:
        return 0.0
    return config.against_majority if is_right else -config.against_majority


def leading(rounds: Sequence[Round], role: str, at: int, config: InfluenceConfig) -> float:
    """The bonuses and penalties for the shares of other roles that switch next."""
    own = rounds[at][role]
    if own is None or at + 1 == len(rounds):
        return 0.0
    moves = [
        (before >= config.right_at, after >= config.right_at)
        for other, before in rounds[at].items()
        if other != role and before is not None and (after := rounds[at + 1].get(other)) is not None
    ]
    if not moves:
        return 0.0
    to_right, to_wrong = (moves.count(move) / len(moves) for move in ((False, True), (True, False)))
    if own >= config.right_at:
        return to_right * config.lead_right - to_wrong * config.lead_opposite
    return to_right * config.lead_opposite - to_wrong * config.lead_wrong


def _scores(a_round: Round) -> list[float]:
    return [score for score in a_round.values() if score is not None]
