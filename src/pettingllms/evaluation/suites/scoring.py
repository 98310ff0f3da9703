"""Scores of one form of a bench: avg@k, pass@k, majority@k, tokens, seconds and failures.

An infrastructure failure, such as a server that does not respond, is no evidence about the player.
Failed episodes stay in the denominator, so that failing gains nothing, and are counted separately:
the affected scores are marked as lower bounds. A form whose episodes all failed has no score. An
episode truncated at a limit counts as unsuccessful.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from pettingllms.algos.credit import mean
from pettingllms.runs.scores import Estimate, estimate, resampled
from pettingllms.types import Episode, Failed

LIMIT = "limit"
"""Owner of a truncation."""
MAX_SUBSETS = 256
"""Subsets of k episodes over which a vote is averaged; beyond this they are sampled."""
NUM_REASONS = 3


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """The outcome and cost of one episode."""

    task: str
    success: bool | None
    """Success of the role; None if the episode failed."""
    answer: str | None
    tokens: int
    """Tokens sampled by the evaluated player."""
    prompt_tokens: int
    """Prompt tokens of the evaluated player."""
    is_counted: bool
    """Whether these are tokens of the player's tokenizer, not bytes."""
    failure: str = ""
    """Owner of a failure or truncation: environment, sampler, judge or limit."""
    reason: str = ""
    has_truncated_reply: bool = False
    """Whether a reply of the evaluated player hit its token limit."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Last values of metrics of the environment; 0 if the episode failed or was truncated."""


def score_episode(
    episode: Episode,
    role: str,
    roles: Sequence[str],
    in_bytes: bool,
    metrics: Sequence[str] = (),
) -> EpisodeScore:
    """Score an episode for one role, with the tokens of several. With `in_bytes` the ids are bytes,
    and tokens are counted only where a server reported them."""
    own = [turn for turn in episode.turns if turn.role in roles]
    failure = Failed(episode.limit, "limit") if episode.limit else episode.failure
    is_failed = failure is not None and failure.owner != LIMIT
    return EpisodeScore(
        task=episode.task.id,
        success=None if is_failed else bool(episode.success.get(role)),
        answer=episode.answers.get(role),
        tokens=sum(turn.num_tokens for turn in own),
        prompt_tokens=sum(turn.num_prompt_tokens for turn in own),
        is_counted=not in_bytes or all(turn.usage or turn.credit.failure for turn in own),
        has_truncated_reply=any(turn.finish == "length" for turn in own),
        failure="" if failure is None else failure.owner,
        reason="" if failure is None else failure.reason,
        metrics={name: 0.0 if failure else _last_value(episode, name) for name in metrics},
    )


def _last_value(episode: Episode, metric: str) -> float:
    """The last value of a metric in an episode; 0 if it has none."""
    values = [episode.steps[at].metrics.get(metric) for at in episode.main_branch()]
    return next((one for one in reversed(values) if one is not None), 0.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of one form of a bench."""

    label: str
    """Team, solo, or the roles of the evaluated player."""
    role: str
    """The role whose success is reported."""
    num_tasks: int
    num_samples: int
    """Episodes per task."""
    k: int
    """The k of pass@k and majority@k."""
    avg: Estimate | None
    """Success rate of the role; None if every episode failed."""
    pass_at: dict[int, Estimate]
    """By k: share of tasks with a success among k episodes."""
    majority_at: dict[int, Estimate]
    """By k: share of tasks whose majority answer of k episodes is correct; empty if answers cannot
    be compared."""
    tokens: float
    """Sampled tokens per episode, without failed ones."""
    prompt_tokens: float
    """Prompt tokens per episode, without failed ones."""
    unit: str
    """Unit of the counts: tokens, or bytes without a tokenizer."""
    seconds: float
    """Time spent waiting for replies per episode, at the concurrency used."""
    failed: dict[str, int]
    """Number of failed episodes by owner."""
    num_truncated: int
    """Episodes truncated at a limit; they count as unsuccessful."""
    num_truncated_replies: int
    """Episodes with a reply that hit its token limit and was used as far as it goes."""
    avg_completed: float | None
    """Success rate over the episodes that did not fail."""
    reasons: dict[str, int]
    """The most common reasons of failures and truncations."""
    tasks: dict[str, float]
    """By task: share of its episodes with success. Failed episodes count as unsuccessful."""
    metrics: dict[str, Estimate]
    """Means of metrics of the environment, for benches that name some."""

    @property
    def num_failed(self) -> int:
        """Number of failed episodes."""
        return sum(self.failed.values())

    def to_json(self) -> dict[str, Any]:
        """As JSON data; each k becomes a string."""
        curves = {
            name: {str(k): asdict(one) for k, one in found.items()}
            for name, found in (("pass_at", self.pass_at), ("majority_at", self.majority_at))
        }
        return asdict(self) | curves


def measured_from(data: Mapping[str, Any]) -> Measured:
    """The inverse of `to_json`."""
    curves = {
        name: {int(k): Estimate(**one) for k, one in data[name].items()}
        for name in ("pass_at", "majority_at")
    }
    avg = None if data["avg"] is None else Estimate(**data["avg"])
    metrics = {name: Estimate(**one) for name, one in data["metrics"].items()}
    return Measured(**{**data, **curves, "avg": avg, "metrics": metrics})


def measure(
    label: str, role: str, scores: Sequence[EpisodeScore], k: int, seconds: float
) -> Measured:
    """Summarize the episodes of a form; every task has the same number of episodes."""
    tasks = by_task(scores)
    number = len(next(iter(tasks.values())))
    completed = [score for score in scores if score.success is not None]
    owners = Counter(score.failure for score in scores if score.success is None)
    reasons = Counter(score.reason for score in scores if score.failure)
    ks = sorted({2**i for i in range(number.bit_length())} | {k, number})
    passes = [pass_curve(some) for some in tasks.values()]
    votes = [vote_curve(some, ks) for some in tasks.values()] if has_answers(scores) else []
    return Measured(
        label=label,
        role=role,
        num_tasks=len(tasks),
        num_samples=number,
        k=k,
        avg=estimate([curve[1] for curve in passes]) if completed else None,
        pass_at={at: estimate([curve[at] for curve in passes]) for at in ks} if completed else {},
        majority_at={at: estimate([vote[at] for vote in votes]) for at in ks} if votes else {},
        tokens=mean([score.tokens for score in completed or scores]),
        prompt_tokens=mean([score.prompt_tokens for score in completed or scores]),
        unit=token_unit(scores),
        seconds=seconds / len(scores),
        failed=dict(owners),
        num_truncated=sum(score.failure == LIMIT for score in scores),
        num_truncated_replies=sum(score.has_truncated_reply for score in scores),
        avg_completed=sum(bool(score.success) for score in completed) / len(completed)
        if completed
        else None,
        reasons=dict(reasons.most_common(NUM_REASONS)),
        tasks={name: curve[1] for name, curve in zip(tasks, passes, strict=True)},
        metrics=_metrics(list(tasks.values())),
    )


def _metrics(tasks: Sequence[Sequence[EpisodeScore]]) -> dict[str, Estimate]:
    """The mean of each metric, with an interval over tasks."""
    return {
        name: resampled([mean([one.metrics[name] for one in scores]) for scores in tasks])
        for name in tasks[0][0].metrics
    }


def by_task(scores: Sequence[EpisodeScore]) -> dict[str, list[EpisodeScore]]:
    """Scores by task, in task order."""
    found: dict[str, list[EpisodeScore]] = {}
    for score in scores:
        found.setdefault(score.task, []).append(score)
    return found


def token_unit(scores: Sequence[EpisodeScore]) -> str:
    """Unit of the token counts."""
    return "tokens" if all(score.is_counted for score in scores) else "bytes"


def has_answers(scores: Sequence[EpisodeScore]) -> bool:
    """Whether any episode has an answer that can be compared."""
    return any(score.answer is not None for score in scores)


def pass_curve(scores: Sequence[EpisodeScore]) -> list[float]:
    """By k, from 0: the probability of a success among k episodes of a task.

    The unbiased estimator of Chen et al. (2021): 1 - C(n - c, k) / C(n, k).
    """
    number, num_unsuccessful = len(scores), sum(not score.success for score in scores)
    return [1 - math.comb(num_unsuccessful, k) / math.comb(number, k) for k in range(number + 1)]


def vote_curve(scores: Sequence[EpisodeScore], ks: Sequence[int]) -> dict[int, float]:
    """By k: how often the majority answer of k episodes of a task is correct.

    Self-consistency (Wang et al., 2023), averaged over subsets of k episodes. Episodes without an
    answer have no vote. A tie is broken at random, so it counts in parts.
    """
    rng = random.Random(0)
    found = {0: 0.0}
    for k in ks:
        if math.comb(len(scores), k) <= MAX_SUBSETS:
            subsets = [list(subset) for subset in combinations(scores, k)]
        else:
            subsets = [rng.sample(list(scores), k) for _ in range(MAX_SUBSETS)]
        found[k] = sum(map(_vote, subsets)) / len(subsets)
    return found


def _vote(scores: Sequence[EpisodeScore]) -> float:
    votes = Counter(score.answer for score in scores if score.answer is not None)
    most = max(votes.values(), default=0)
    tied = [answer for answer, count in votes.items() if count == most]
    correct = [
        sum(bool(score.success) for score in scores if score.answer == answer) / most
        for answer in tied
    ]
    return sum(correct) / len(correct) if correct else 0.0
