"""What plays of one form came to: avg@k, pass@k, majority@k, tokens, seconds, failures.

A play that failed by no fault of the subject, because a server did not answer or an environment
broke, says nothing about it. It stays in the denominator, so that nothing is gained by failing, and
it is counted apart: numbers that it is in are lower bounds, and are marked as such. A form of which
every play failed has no number at all. A play that was cut at a limit is the subject's own doing.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from pettingllms.algos.credit import mean
from pettingllms.runs.scores import Estimate, estimate
from pettingllms.types import Episode, Failed

LIMIT = "limit"
"""Who is answerable where a play was cut."""
MAX_SETS = 256
"""Of k plays, over which a vote is averaged; where there are more, so many are drawn."""
NUM_REASONS = 3


@dataclass(frozen=True, slots=True)
class Play:
    """One play, as far as numbers go."""

    task: str
    reached: bool | None
    """Whether the role reached its aim; None if the play failed."""
    answer: str | None
    tokens: int
    """Sampled by the subject."""
    prompt_tokens: int
    """That the subject was shown."""
    is_counted: bool
    """Whether these are tokens of the subject's own tokenizer, not bytes."""
    failure: str = ""
    """Who is answerable if it did not come to its end: environment, sampler, judge or limit."""
    reason: str = ""
    is_long: bool = False
    """Whether a reply of the subject was still under way at its last token."""


def play_of(episode: Episode, role: str, roles: Sequence[str], in_bytes: bool) -> Play:
    """An episode, told from one role, with the tokens of some. `in_bytes` says that ids are bytes,
    so that tokens are counted only where a server counted them."""
    own = [turn for turn in episode.turns if turn.role in roles]
    failure = Failed(episode.limit, "limit") if episode.limit else episode.failure
    lost = failure is not None and failure.owner != LIMIT
    return Play(
        task=episode.task.id,
        reached=None if lost else bool(episode.success.get(role)),
        answer=episode.answers.get(role),
        tokens=sum(turn.num_tokens for turn in own),
        prompt_tokens=sum(turn.num_prompt_tokens for turn in own),
        is_counted=not in_bytes or all(turn.usage or turn.credit.failure for turn in own),
        is_long=any(turn.finish == "length" for turn in own),
        failure="" if failure is None else failure.owner,
        reason="" if failure is None else failure.reason,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """One form of a bench, summed up."""

    label: str
    """Who played: team, solo, or the roles that the subject had."""
    role: str
    """Whose success it is."""
    num_tasks: int
    num_plays: int
    """Of each task."""
    k: int
    """Of pass@k and majority@k."""
    avg: Estimate | None
    """Share of plays in which the role reached its aim; None if every play failed."""
    pass_at: dict[int, Estimate]
    """By k: share of tasks in which one of k plays reaches it."""
    majority_at: dict[int, Estimate]
    """By k: share of tasks in which the answer that most of k plays give is right; empty where
    answers cannot be compared."""
    tokens: float
    """Sampled for an answer. Plays that failed gave none."""
    prompt_tokens: float
    """Read for an answer."""
    unit: str
    """What is counted: tokens, or bytes where nobody has a tokenizer."""
    seconds: float
    """Waited for replies, for an answer, with as many plays at once as there were."""
    failed: dict[str, int]
    """Plays that failed, by who is answerable."""
    num_cut: int
    """Plays that were cut at a limit. They have not reached the aim."""
    num_long: int
    """Plays with a reply that was cut at its last token; each was read as far as it goes."""
    avg_ended: float | None
    """Share of the plays that did not fail."""
    reasons: dict[str, int]
    """Why plays failed or were cut, the commonest."""

    @property
    def num_failed(self) -> int:
        """Plays that say nothing about the subject."""
        return sum(self.failed.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data; each k becomes a string."""
        curves = {
            name: {str(k): asdict(one) for k, one in found.items()}
            for name, found in (("pass_at", self.pass_at), ("majority_at", self.majority_at))
        }
        return asdict(self) | curves


def measured_from(data: Mapping[str, Any]) -> Measured:
    """What `to_json` wrote."""
    curves = {
        name: {int(k): Estimate(**one) for k, one in data[name].items()}
        for name in ("pass_at", "majority_at")
    }
    avg = None if data["avg"] is None else Estimate(**data["avg"])
    return Measured(**{**data, **curves, "avg": avg})


def measure(label: str, role: str, plays: Sequence[Play], k: int, seconds: float) -> Measured:
    """Sum the plays of a form up; every task has been played equally often."""
    tasks = by_task(plays)
    number = len(next(iter(tasks.values())))
    ended = [play for play in plays if play.reached is not None]
    owners = Counter(play.failure for play in plays if play.reached is None)
    reasons = Counter(play.reason for play in plays if play.failure)
    ks = sorted({2**i for i in range(number.bit_length())} | {k, number})
    passes = [pass_curve(some) for some in tasks.values()]
    votes = [vote_curve(some, ks) for some in tasks.values()] if has_answers(plays) else []
    return Measured(
        label=label,
        role=role,
        num_tasks=len(tasks),
        num_plays=number,
        k=k,
        avg=estimate([curve[1] for curve in passes]) if ended else None,
        pass_at={at: estimate([curve[at] for curve in passes]) for at in ks} if ended else {},
        majority_at={at: estimate([vote[at] for vote in votes]) for at in ks} if votes else {},
        tokens=mean([play.tokens for play in ended or plays]),
        prompt_tokens=mean([play.prompt_tokens for play in ended or plays]),
        unit=unit_of(plays),
        seconds=seconds / len(plays),
        failed=dict(owners),
        num_cut=sum(play.failure == LIMIT for play in plays),
        num_long=sum(play.is_long for play in plays),
        avg_ended=sum(bool(play.reached) for play in ended) / len(ended) if ended else None,
        reasons=dict(reasons.most_common(NUM_REASONS)),
    )


def by_task(plays: Sequence[Play]) -> dict[str, list[Play]]:
    """The plays of each task, in the order in which tasks came."""
    found: dict[str, list[Play]] = {}
    for play in plays:
        found.setdefault(play.task, []).append(play)
    return found


def unit_of(plays: Sequence[Play]) -> str:
    """What the plays' tokens are."""
    return "tokens" if all(play.is_counted for play in plays) else "bytes"


def has_answers(plays: Sequence[Play]) -> bool:
    """Whether any play came to an answer that can be compared."""
    return any(play.answer is not None for play in plays)


def pass_curve(plays: Sequence[Play]) -> list[float]:
    """By k, from 0: the chance that one of k plays of a task reached the aim.

    The unbiased estimator of Chen et al. (2021): 1 - C(n - c, k) / C(n, k).
    """
    number, lost = len(plays), sum(not play.reached for play in plays)
    return [1 - math.comb(lost, k) / math.comb(number, k) for k in range(number + 1)]


def vote_curve(plays: Sequence[Play], ks: Sequence[int]) -> dict[int, float]:
    """By k: how often the answer that most of k plays of a task give is right.

    Self-consistency (Wang et al., 2023), averaged over the ways to pick k plays. Plays without an
    answer have no vote. Of answers with as many votes one is drawn, so a tie counts in parts.
    """
    rng = random.Random(0)
    found = {0: 0.0}
    for k in ks:
        if math.comb(len(plays), k) <= MAX_SETS:
            sets = [list(some) for some in combinations(plays, k)]
        else:
            sets = [rng.sample(list(plays), k) for _ in range(MAX_SETS)]
        found[k] = sum(map(_vote, sets)) / len(sets)
    return found


def _vote(plays: Sequence[Play]) -> float:
    votes = Counter(play.answer for play in plays if play.answer is not None)
    most = max(votes.values(), default=0)
    tied = [answer for answer, count in votes.items() if count == most]
    right = [
        sum(bool(play.reached) for play in plays if play.answer == answer) / most for answer in tied
    ]
    return sum(right) / len(right) if right else 0.0
