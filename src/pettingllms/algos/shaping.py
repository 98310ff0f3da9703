"""What an answer in a debate is worth: its score, the scores after it, and who moved whom.

Plain numbers, after Park et al. (2025). A score says whether an answer was right; it does not say
whether anybody was helped. So an answer also gets a share of what everyone scores after it, and
prices for coming over to a side and for bringing others over to it.

What counts as what, in round t:

- *right* is a score of at least `right_at`, *wrong* one below it; without a score one is neither.
- *the majority* of a role is the side of more than half of the others that have a score. A role is
  not in its own majority: it follows others, and of two roles each can follow the other.
- *following* is to be on the majority's side of round t - 1 now, and not to have been on it then.
  Towards the right that is open to a role that had no answer; towards the wrong it is not.
- *leading* is to be on a side in which others are in round t + 1 and were not in round t. It is
  counted as a share of the others with a score in both rounds.

All answers of one round count as given at the same time. A wrong majority need not have agreed on
one answer: what is known are scores. Nor is it known why somebody came over, so everyone who was on
that side is paid.
"""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from pettingllms.algos.credit import mean
from pettingllms.config import AlgoConfig

Round = Mapping[str, float | None]
"""What each role scored in one round; None if it gave no answer that was scored. A role that did
not speak, or whose score failed, is not in it: nothing is known of it and nothing follows."""


class DebateConfig(AlgoConfig):
    """Options of debate."""

    gamma: float = Field(default=0.3, ge=0, le=1)
    """What everyone's mean score of the next round counts beside an answer's own; 0: nothing."""
    right_at: float = 0.5
    """The score from which on an answer is right."""
    follow_right: float = Field(default=0.1, ge=0)
    """Paid for coming over to a majority that was right in the round before."""
    follow_wrong: float = Field(default=0.1, ge=0)
    """Taken for leaving a right answer for a majority that was wrong in the round before."""
    lead_right: float = Field(default=0.1, ge=0)
    """Paid for a right answer, times the share of others that were wrong and are right next."""
    lead_wrong: float = Field(default=0.1, ge=0)
    """Taken for a wrong answer, times the share of others that were right and are wrong next."""


def shaped_score(rounds: Sequence[Round], role: str, at: int, prices: DebateConfig) -> float | None:
    """All that one answer is worth; None if neither it nor anything that counts after it scored."""
    own = rounds[at][role]
    paid = [*([] if own is None else [own]), *later_scores(rounds, at, prices.gamma)]
    if not paid:
        return None
    moves = (following(rounds, role, at, prices), leading(rounds, role, at, prices))
    return math.fsum([*paid, *moves])


def later_scores(rounds: Sequence[Round], at: int, gamma: float) -> list[float]:
    """For each later round k that has scores, gamma^(k - t) times their mean over all roles."""
    if not gamma:
        return []
    later = enumerate(rounds[at + 1 :], start=1)
    return [gamma**ahead * mean(scores) for ahead, after in later if (scores := _scores(after))]


def majority(heard: Round, listener: str, right_at: float) -> bool | None:
    """Whether most others were right; None in a tie, and where nobody else has a score."""
    others = {role: score for role, score in heard.items() if role != listener}
    votes = [score >= right_at for score in _scores(others)]
    num_right, num_wrong = votes.count(True), votes.count(False)
    return None if num_right == num_wrong else num_right > num_wrong


def following(rounds: Sequence[Round], role: str, at: int, prices: DebateConfig) -> float:
    """`follow_right` or minus `follow_wrong` for coming over to the majority one round ago."""
    now = rounds[at][role]
    if at == 0 or now is None or role not in rounds[at - 1]:
        return 0.0
    side = majority(rounds[at - 1], role, prices.right_at)
    before = rounds[at - 1][role]
    was_right = before is not None and before >= prices.right_at
    if side is None or was_right == side or (now >= prices.right_at) != side:
        return 0.0
    return prices.follow_right if side else -prices.follow_wrong


def leading(rounds: Sequence[Round], role: str, at: int, prices: DebateConfig) -> float:
    """`lead_right` or minus `lead_wrong`, times the share of the others that came over next."""
    own = rounds[at][role]
    if own is None or at + 1 == len(rounds):
        return 0.0
    side = own >= prices.right_at
    came_over = [
        (before >= prices.right_at) != side and (after >= prices.right_at) == side
        for other, before in rounds[at].items()
        if other != role and before is not None and (after := rounds[at + 1].get(other)) is not None
    ]
    if not any(came_over):
        return 0.0
    share = came_over.count(True) / len(came_over)
    return share * (prices.lead_right if side else -prices.lead_wrong)


def _scores(a_round: Round) -> list[float]:
    return [score for score in a_round.values() if score is not None]
