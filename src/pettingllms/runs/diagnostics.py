"""Diagnostics of a run from its metrics: each has an observation and a remedy.

Bounds come from the run's configuration where it has one. Diagnostics about the learning curve need
a minimum number of steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from pettingllms.config import RunConfig

RECENT = 10
"""Steps that count as recent."""
MIN_STEPS = 12
"""Steps that diagnostics of the learning curve need."""
DROPPED = 0.05
"""Share of dropped groups that is too large."""
NEAR_BOUND, IDLE = 0.25, 0.3
"""How close the mean staleness is to its bound, and how much engines idle, if groups wait for
learners."""
NO_SIGNAL, CUT, CAPPED, CLIPPED, FALL = 0.8, 0.2, 0.05, 0.3, 0.1
HELD_OUT_GAP, FEW_TASKS, SAME_ANSWER, REJECTED = 0.25, 0.25, 0.5, 0.8
"""Proposed tasks: how much better they may be solved than held-out ones, the share of distinct ones
that is too small, the share of one answer that is too large, and that of rejected proposals."""
MIN_PROPOSALS = 8
"""Proposals per step that diagnostics of proposed tasks need."""
MEDIAN_CHANGE = 0.954
"""Median change between two independent normal values, in standard deviations of one."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A problem that a user should look at."""

    what: str
    """The observation, with its number."""
    help: str
    """The remedy."""


def diagnose(rows: Rows, config: RunConfig) -> list[Diagnosis]:
    """All problems, the most serious first."""
    if not rows:
        return []
    found = [*_failures(rows, config), *_cuts(rows, config), *_staleness(rows, config)]
    found += _proposals(rows)
    for policy in sorted(config.trained_policies()):
        found += _of_policy(rows, f"policies/{policy}/", policy, config)
    for role in config.roles:
        found += _of_role(rows, f"roles/{role}/", role)
    return found


def _failures(rows: Rows, config: RunConfig) -> Iterator[Diagnosis]:
    bound = config.rollout.max_failure_share
    for role in config.roles:
        share = recent(rows, f"roles/{role}/failed_share")
        if share is not None and share > bound:
            yield Diagnosis(
                f"{share:.0%} of the replies of '{role}' failed in the last steps "
                f"(rollout.max_failure_share = {bound:.0%})",
                "they are excluded from training; look at the reasons in the failed episodes",
            )


def _cuts(rows: Rows, config: RunConfig) -> Iterator[Diagnosis]:
    cut, episodes = recent(rows, "rollout/cut_episodes"), recent(rows, "rollout/num_episodes")
    bound = config.rollout.max_cut_share
    if cut and episodes and cut > bound * episodes:
        yield Diagnosis(
            f"{cut / episodes:.0%} of the episodes were cut at a limit in the last steps "
            f"(rollout.max_cut_share = {bound:.0%})",
            "raise the limit that the alarm names, or check whether the episodes ever end",
        )


def _staleness(rows: Rows, config: RunConfig) -> Iterator[Diagnosis]:
    """Groups that are too old, or as old as they may be."""
    bound = config.rollout.max_staleness
    dropped = recent(rows, "staleness/dropped_share")
    if dropped is not None and dropped > DROPPED:
        yield Diagnosis(
            f"{dropped:.0%} of the groups were too old in the last steps and were dropped "
            f"(rollout.max_staleness = {bound})",
            "some groups take much longer than others: raise the bound, or lower "
            "rollout.max_reply_tokens or rollout.max_steps",
        )
    age, idle = recent(rows, "staleness/mean"), recent(rows, "idle/engines")
    if bound and age is not None and idle is not None and age > bound - NEAR_BOUND and idle > IDLE:
        yield Diagnosis(
            f"tokens are {age:.2g} versions old on average, of at most {bound} "
            f"(rollout.max_staleness), while engines idle {idle:.0%} of the time",
            "learners are the bottleneck: add ranks, or move devices from engines to learners",
        )


def _proposals(rows: Rows) -> Iterator[Diagnosis]:
    """Signs that a role that proposes tasks and those that solve them agree on a code."""
    num, accepted, gap, novelty, answer = (
        recent(rows, f"proposals/{name}")
        for name in ("num_proposals", "accepted_share", "gap", "novelty", "common_answer_share")
    )
    if num is None or accepted is None or num < MIN_PROPOSALS:
        return
    remedy = (
        "the roles may have agreed on a code: read proposed tasks and replies in the viewer, trust "
        "only success on held-out tasks, and train on env.proposes = false for a while"
    )
    if gap is not None and gap > HELD_OUT_GAP:
        yield Diagnosis(
            f"solvers solve {gap:.0%} more of the proposed tasks than of held-out tasks of the "
            "same difficulty",
            remedy,
        )
    if accepted < 1 - REJECTED:
        yield Diagnosis(
            f"{1 - accepted:.0%} of the proposals were rejected in the last steps",
            "see proposals/invalid_share and the like; warm-start the proposer with SFT",
        )
    elif novelty is not None and novelty < FEW_TASKS:
        yield Diagnosis(f"only {novelty:.0%} of the accepted proposals are distinct tasks", remedy)
    elif answer is not None and answer > SAME_ANSWER:
        yield Diagnosis(f"{answer:.0%} of the accepted proposals have the same answer", remedy)


def _of_policy(rows: Rows, prefix: str, policy: str, config: RunConfig) -> Iterator[Diagnosis]:
    skipped = sum(row.get(f"{prefix}skipped_updates") or 0 for row in rows)
    if skipped:
        yield Diagnosis(
            f"'{policy}' skipped {skipped:g} non-finite updates",
            f"lower policies.{policy}.lr, or use float32; the replies are under skipped/",
        )
    mismatch, bound = recent(rows, f"{prefix}mismatch"), config.mismatch_bound()
    if mismatch is not None and mismatch > bound / 2:
        yield Diagnosis(
            f"sampler and learner differ by {mismatch:.2g} per token on '{policy}'; the run stops "
            f"at {bound:g}",
            "use float32 on both sides (inference.dtype, learner.dtype)",
        )
    zero = recent(rows, f"{prefix}zero_share")
    if zero is not None and zero > NO_SIGNAL:
        yield Diagnosis(
            f"{zero:.0%} of the advantages of '{policy}' are 0: compared replies got equal rewards",
            "tasks are too easy or too hard: use a curriculum, more rollout.num_samples, or a warm "
            "start",
        )
    yield from _narrowing(rows, prefix, policy, config)
    for name, limit, text in (
        ("clip_share", CLIPPED, "of the tokens of '{}' were clipped: updates are too large"),
        ("capped_share", CAPPED, "of the importance weights of '{}' were capped"),
    ):
        share = recent(rows, prefix + name)
        if share is not None and share > limit:
            yield Diagnosis(f"{share:.0%} " + text.format(policy), f"lower policies.{policy}.lr")


def _narrowing(rows: Rows, prefix: str, policy: str, config: RunConfig) -> Iterator[Diagnosis]:
    entropy, first = (
        recent(rows, f"{prefix}sampler_entropy"),
        early(rows, f"{prefix}sampler_entropy"),
    )
    if (
        entropy is not None
        and first is not None
        and len(rows) >= MIN_STEPS
        and entropy < first / 10
    ):
        yield Diagnosis(
            f"the entropy of '{policy}' fell from {first:.2g} to {entropy:.2g}: it explores little",
            "fine if it succeeds; otherwise raise loss.entropy_coef or lower its lr",
        )
    replies = recent(rows, f"{prefix}distinct_replies")
    if replies is not None and replies < config.active_guard.min_replies:
        yield Diagnosis(
            f"'{policy}' gives {replies:.2f} different replies over all prompts",
            "see docs/guides/training_runs.md, Guards against collapse",
        )


def _of_role(rows: Rows, prefix: str, role: str) -> Iterator[Diagnosis]:
    probing = sum(row.get(f"{prefix}probing_calls") or 0 for row in rows)
    if probing:
        yield Diagnosis(
            f"programs of '{role}' made {probing:g} suspicious system calls, which the sandbox "
            "blocked",
            "read these programs: the policy may be probing its sandbox; step metrics of its "
            "episodes name the calls (refused_calls/NAME)",
        )
    cut = recent(rows, f"{prefix}cut_share")
    if cut is not None and cut > CUT:
        yield Diagnosis(
            f"{cut:.0%} of the replies of '{role}' were cut at rollout.max_reply_tokens",
            "raise it, or state the expected length in the prompt",
        )
    measured = [row[f"{prefix}eval_success"] for row in rows if f"{prefix}eval_success" in row]
    if len(measured) > 1 and measured[-1] < max(measured) - FALL:
        yield Diagnosis(
            f"success of '{role}' is {measured[-1]:.0%} in the last evaluation, and was "
            f"{max(measured):.0%} in the best",
            "`pettingllms resume RUN --step N` resumes from an earlier checkpoint",
        )
    gain = progress(rows, f"{prefix}reward")
    if gain is not None and gain[0] <= gain[1]:
        yield Diagnosis(
            f"the reward of '{role}' changed by {gain[0]:+.3f} since the start, which is within "
            f"noise ({gain[1]:.3f})",
            "use more steps, a higher lr, or easier tasks; check whether advantages are 0",
        )


def progress(rows: Rows, name: str) -> tuple[float, float] | None:
    """Difference between the last quarter and the start, and twice its standard error.

    A run may learn within its first steps, so the start is the first quarter or the first step,
    whichever shows more progress. For the same reason the noise of a step is estimated from the
    median change between steps, not from the variation within the first quarter.
    """
    values = [row[name] for row in rows if row.get(name) is not None]
    if len(values) < MIN_STEPS:
        return None
    size = len(values) // 4
    noise = median(abs(after - before) for before, after in pairwise(values)) / MEDIAN_CHANGE
    last = fmean(values[-size:])
    gains = (
        (last - fmean(values[:num]), 2 * noise * (1 / num + 1 / size) ** 0.5) for num in (size, 1)
    )
    return max(gains, key=lambda gain: gain[0] - gain[1])


def recent(rows: Rows, name: str) -> float | None:
    """Mean over the recent steps that have the metric."""
    values = [row[name] for row in rows[-RECENT:] if row.get(name) is not None]
    return fmean(values) if values else None


def early(rows: Rows, name: str) -> float | None:
    """Mean over the first steps that have the metric."""
    values = [row[name] for row in rows[:RECENT] if row.get(name) is not None]
    return fmean(values) if values else None
