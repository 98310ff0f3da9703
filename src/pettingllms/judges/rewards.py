"""Turn verdicts on submissions into rewards of the steps that made the submissions.

Group rewards need the whole group, so judging runs after the rollouts of a batch and before credit
assignment. Verdicts become process, agent or team rewards, which every algorithm reads like the
environment's own rewards.
"""

import asyncio
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from pettingllms.config import JudgeConfig, RunConfig
from pettingllms.judges.base import Judge
from pettingllms.judges.batch import JudgedBatch
from pettingllms.judges.bradley_terry import Comparison, Pair, round_robin, strengths, swiss_round
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    TEAM,
    Episode,
    Failed,
    Reward,
    Rewards,
    Scored,
    Step,
    Submission,
    Task,
    total,
)
from pettingllms.types.rewards import SubmissionLevel

Key = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class Entry:
    """A submission, the step that made it, and the role that receives the reward."""

    key: Key
    """Entries with equal keys are comparable."""
    step: Step
    role: str
    submission: Submission
    verdict: Reward = field(default_factory=lambda: Failed("was not judged", "judge"))
    deviation: float | None = None
    """Posterior standard deviation of its Bradley-Terry strength, if fitted."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Metrics and alarms from judging a batch."""

    metrics: dict[str, float] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)


async def judge_all(
    episodes: Sequence[Episode],
    references: Sequence[Episode],
    config: JudgeConfig,
    judges: Mapping[str, Judge],
    max_failure_share: float,
) -> Verdicts:
    """Judge every submission and add the verdicts to the rewards of their steps."""
    entries = [entry for episode in episodes for entry in _entries(episode)]
    if not entries:
        return Verdicts(alarms=["no episode made a submission for the judge (judge.by)"])
    batch = JudgedBatch(config, judges, asyncio.get_running_loop().time() + config.timeout)
    if config.against == "score":
        await _score(batch, entries)
    elif config.against == "reference":
        known = [entry for episode in references for entry in _entries(episode)]
        await _compare_with_references(batch, entries, known)
    else:
        await _compare_groups(batch, entries)
    for entry in entries:
        _add_reward(entry, config.weight)
    return _summary(batch, entries, max_failure_share)


def _entries(episode: Episode) -> list[Entry]:
    problem = (episode.env, episode.task.id, episode.seed)
    return [
        Entry((*problem, role, submission.question), step, role, submission)
        for step in episode.steps
        for role, submission in step.submissions.items()
    ]


async def _score(batch: JudgedBatch, entries: Sequence[Entry]) -> None:
    found = await asyncio.gather(*(batch.score(entry.submission) for entry in entries))
    for entry, verdict in zip(entries, found, strict=True):
        entry.verdict = verdict


async def _compare_with_references(
    batch: JudgedBatch, entries: Sequence[Entry], references: Sequence[Entry]
) -> None:
    by_key: dict[Key, list[Submission]] = {}
    for reference in references:
        by_key.setdefault(reference.key, []).append(reference.submission)

    async def compare(entry: Entry) -> None:
        others = by_key.get(entry.key, [])
        verdicts = await asyncio.gather(
            *(batch.compare(entry.submission, other) for other in others)
        )
        entry.verdict = _mean(verdicts, "the reference gave no answer to the same question")

    await asyncio.gather(*(compare(entry) for entry in entries))


async def _compare_groups(batch: JudgedBatch, entries: Sequence[Entry]) -> None:
    groups: dict[Key, list[Entry]] = {}
    for entry in entries:
        rivals = (
            id(entry.step),
            entry.submission.question,
        )  # roles that answer the same question in one step
        key = rivals if batch.config.against == "rival" else entry.key
        groups.setdefault(key, []).append(entry)
    await asyncio.gather(*(_tournament(batch, group) for group in groups.values()))


async def _tournament(batch: JudgedBatch, group: Sequence[Entry]) -> None:
    """Compare a group's answers; each scores its expected win rate against the others."""
    reasons: list[str] = []
    found = await _play_tournament(batch, group, reasons)
    met = {player for comparison in found for player in (comparison.one, comparison.other)}
    fitted = strengths(len(group), found, batch.config.prior)
    expected = fitted.expected()
    for at, entry in enumerate(group):
        if at in met:
            entry.verdict, entry.deviation = (
                Scored(float(expected[at])),
                float(fitted.deviations[at]),
            )
        else:
            why = reasons[0] if reasons else "nothing to compare it with"
            entry.verdict = Failed(why, "judge")


async def _play_tournament(
    batch: JudgedBatch, group: Sequence[Entry], reasons: list[str]
) -> list[Comparison]:
    rounds = batch.config.rounds
    if not rounds or len(group) < 3:
        return await _play_round(batch, group, round_robin(len(group)), reasons)
    rng = random.Random(derive_seed("swiss", *(entry.submission.answer for entry in group)))
    points = [0.0] * len(group)
    met: set[Pair] = set()
    found: list[Comparison] = []
    for _ in range(rounds):
        pairs = swiss_round(points, met, rng)
        met.update(pairs)
        for comparison in await _play_round(batch, group, pairs, reasons):
            points[comparison.one] += comparison.won
            points[comparison.other] += 1 - comparison.won
            found.append(comparison)
    return found


async def _play_round(
    batch: JudgedBatch, group: Sequence[Entry], pairs: Sequence[Pair], reasons: list[str]
) -> list[Comparison]:
    """Compare the pairs; reasons of failed comparisons are appended to `reasons`."""
    asked = (batch.compare(group[one].submission, group[other].submission) for one, other in pairs)
    verdicts = await asyncio.gather(*asked)
    reasons += [verdict.reason for verdict in verdicts if isinstance(verdict, Failed)]
    return [
        Comparison(one, other, verdict.value)
        for (one, other), verdict in zip(pairs, verdicts, strict=True)
        if isinstance(verdict, Scored)
    ]


def _mean(verdicts: Sequence[Reward], missing: str) -> Reward:
    given = [verdict.value for verdict in verdicts if isinstance(verdict, Scored)]
    if given:
        return Scored(fmean(given))
    return next((v for v in verdicts if isinstance(v, Failed)), Failed(missing, "judge"))


def _add_reward(entry: Entry, weight: float) -> None:
    """Add the verdict to the rewards of the step."""
    verdict, step, role = entry.verdict, entry.step, entry.role
    reward = Scored(weight * verdict.value) if isinstance(verdict, Scored) else verdict
    step.rewards = with_verdict(step.rewards, role, entry.submission.level, reward)
    if isinstance(verdict, Scored):
        name = f"judged_{role}" if role else "judged"
        step.metrics = {**step.metrics, name: verdict.value}


def with_verdict(rewards: Rewards, role: str, level: SubmissionLevel, verdict: Reward) -> Rewards:
    """The rewards of a step with a verdict added at its level."""
    if role == TEAM:
        return replace(rewards, team=total([rewards.team, verdict]))
    of_roles = rewards.process if level == "process" else rewards.agent
    both = {**of_roles, role: total([of_roles.get(role), verdict]) or verdict}
    return replace(rewards, process=both) if level == "process" else replace(rewards, agent=both)


def _summary(batch: JudgedBatch, entries: Sequence[Entry], max_failure_share: float) -> Verdicts:
    given = [entry.verdict.value for entry in entries if isinstance(entry.verdict, Scored)]
    failed = [entry.verdict.reason for entry in entries if isinstance(entry.verdict, Failed)]
    share = len(failed) / len(entries)
    metrics = {"num_verdicts": float(len(entries)), "failed_share": share}
    alarms = []
    if share > max_failure_share:
        alarms.append(f"{share:.0%} of verdicts failed; the first: {failed[0]}")
    if given:
        metrics["score"] = fmean(given)
    deviations = [entry.deviation for entry in entries if entry.deviation is not None]
    if deviations:
        metrics["strength_deviation"] = fmean(deviations)
    if batch.pairs:
        metrics |= _held_out_metrics(batch)
        if metrics["held_out_gap"] > batch.config.max_held_out_gap:
            alarms.append(
                f"'{batch.config.by}' scores {metrics['held_out_gap']:.2f} above held-out judge "
                f"'{batch.config.held_out}', more than judge.max_held_out_gap; the policy may be "
                "exploiting the judge"
            )
    for name, judge in batch.judges.items():
        metrics |= {f"{name}_{key}": value for key, value in judge.metrics().items()}
    return Verdicts(metrics, alarms)


def _held_out_metrics(batch: JudgedBatch) -> dict[str, float]:
    """For scores and references, the gap is the difference of the judges' means. Within a group
    both means are one half, so the gap is the mean absolute difference per pair."""
    own, held_out = (fmean(side) for side in zip(*batch.pairs, strict=True))
    apart = fmean(abs(one - other) for one, other in batch.pairs)
    by_mean = batch.config.against in ("score", "reference")
    return {
        "held_out_score": held_out,
        "disagreement": apart,
        "held_out_gap": own - held_out if by_mean else apart,
    }


Assignments = Mapping[str, Mapping[str, str]]
FIRST_REFERENCE = 1_000_000
"""Episode number of the first reference rollout per task; no other episode has it. Sampling seeds
derive from the number, so with shared numbers a reference with equal weights would repeat the
learner's reply word for word and always tie."""


def reference_assignments(
    config: RunConfig, reference: str, tasks: Sequence[Task], assignments: Assignments
) -> Assignments:
    """The assignment of each task, by task id. `assignments` override [roles]: the reference meets
    the same co-players as the learners, so that the comparison is fair."""
    learn = config.trained_policies()
    return {
        task.id: {
            role: reference if name in learn else name
            for role, name in assignments.get(task.id, config.roles).items()
        }
        for task in tasks
    }
