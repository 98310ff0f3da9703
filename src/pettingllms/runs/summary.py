"""Summary of a set of episodes, and alarms if they should not be trained on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pettingllms.algos.credit import decisions, differ_in_end, role_reward, turn_reward
from pettingllms.config import RunConfig
from pettingllms.sandbox.blocked_calls import from_metrics, is_probing
from pettingllms.types import Episode, Failed, Scored

NUM_NAMED = 5
"""System calls that an alarm lists."""


@dataclass(slots=True)
class Summary:
    """Counts of a set of episodes. Failures are counted, and excluded from means."""

    num_episodes: int = 0
    num_failed_episodes: int = 0
    num_cut_episodes: int = 0
    """Episodes cut at a limit that did not fail."""
    num_turns: int = 0
    num_trained_turns: int = 0
    num_failed_turns: int = 0
    num_tokens: int = 0
    """All sampled tokens, extra ones included."""
    num_extra_tokens: int = 0
    """Tokens of continuations and replays."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed turns, and failed episodes without a failed turn, by owner and reason."""
    cuts: Counter[str] = field(default_factory=Counter)
    """Cut episodes by limit."""
    failed_turns: Counter[str] = field(default_factory=Counter)
    """Failed turns by role."""
    successes: dict[str, list[float]] = field(default_factory=dict)
    """By role: success of ordinary samples in each episode; 0 if the episode failed. Episodes that
    only have the best of several siblings are left out."""
    best_successes: Counter[str] = field(default_factory=Counter)
    """Tree episodes in which the best of several siblings succeeded, by role."""
    num_best: int = 0
    """Tree episodes with a best-of-k branch."""
    num_uncompared: int = 0
    """Decisions whose siblings differ in whether they end the episode, without continuations."""
    rewards: dict[str, list[float]] = field(default_factory=dict)
    """Rewards of each role in completed episodes."""
    blocked_calls: dict[str, Counter[str]] = field(default_factory=dict)
    """System calls that the sandbox blocked, by name, for roles whose programs ran in one."""

    @property
    def failure_share(self) -> float:
        """Share of failed turns or of failed episodes, whichever is larger."""
        turns = self.num_failed_turns / max(1, self.num_turns)
        return max(turns, self.num_failed_episodes / max(1, self.num_episodes))


def summarize(episodes: Iterable[Episode], config: RunConfig) -> Summary:
    """Summarize episodes."""
    summary = Summary(
        successes={role: [] for role in config.roles}, rewards={role: [] for role in config.roles}
    )
    for episode in episodes:
        _add_episode(summary, episode, config)
        for turn in episode.turns:
            summary.num_trained_turns += turn.credit.advantage is not None
            reward = turn_reward(episode, turn, config.reward)
            if isinstance(reward, Failed) and (
                turn.credit.failure is not None or not episode.limit
            ):
                summary.num_failed_turns += 1
                summary.failed_turns[turn.role] += 1
                summary.failures[f"{reward.owner}: {reward.reason}"] += 1
    return summary


def alarm(summary: Summary, config: RunConfig) -> str | None:
    """Why episodes should not be trained on; None if they are fine."""
    if summary.failure_share > config.rollout.max_failure_share:
        reason, count = summary.failures.most_common(1)[0]
        return (
            f"{summary.num_failed_turns} turns and {summary.num_failed_episodes} episodes failed, "
            f"more than rollout.max_failure_share = {config.rollout.max_failure_share:.1%} of all. "
            f"Most often ({count} times): {reason}"
        )
    if summary.num_cut_episodes > config.rollout.max_cut_share * summary.num_episodes:
        reason, count = summary.cuts.most_common(1)[0]
        return (
            f"{summary.num_cut_episodes} of {summary.num_episodes} episodes were cut at a limit, "
            f"more than rollout.max_cut_share = {config.rollout.max_cut_share:.1%}. Most often "
            f"({count} times): {reason}"
        )
    if not summary.num_trained_turns and config.trained_policies():
        return (
            f"No turn could be compared, so there is nothing to learn from.{_uncompared(summary)}"
        )
    return None


def sandbox_alarm(summary: Summary) -> str | None:
    """Roles whose programs made suspicious system calls, as a message; None if there are none."""
    found = []
    for role, blocked in summary.blocked_calls.items():
        probing = Counter({name: count for name, count in blocked.items() if is_probing(name)})
        if probing:
            names = ", ".join(f"{name} {count}" for name, count in probing.most_common(NUM_NAMED))
            found.append(f"'{role}' ({names})")
    if not found:
        return None
    return (
        "Programs made suspicious system calls, which the sandbox blocked: "
        f"{'; '.join(found)}. Read these programs: the policy may be probing its sandbox."
    )


def _uncompared(summary: Summary) -> str:
    if not summary.num_uncompared:
        return ""
    return (
        f" Siblings of {summary.num_uncompared} decisions differ in whether they end the episode; "
        'set rollout.continuation = "auto".'
    )


def learner_tokens(episodes: Iterable[Episode], config: RunConfig) -> int:
    """Tokens that policies that learn have sampled, including tokens of dropped turns."""
    trained = config.trained_policies()
    return sum(
        sum(turn.num_tokens for turn in episode.turns if turn.policy in trained)
        + sum(count for policy, count in episode.dropped_tokens.items() if policy in trained)
        for episode in episodes
    )


def _add_episode(summary: Summary, episode: Episode, config: RunConfig) -> None:
    summary.num_episodes += 1
    summary.num_turns += len(episode.turns)
    summary.num_extra_tokens += episode.num_extra_tokens
    summary.num_tokens += episode.num_tokens + sum(episode.dropped_tokens.values())
    if episode.failure is not None:
        summary.num_failed_episodes += 1
        if all(turn.credit.failure is None for turn in episode.turns):
            summary.failures[f"{episode.failure.owner}: {episode.failure.reason}"] += 1
    if episode.limit:
        summary.num_cut_episodes += 1
        summary.cuts[episode.limit] += 1
    _add_blocked_calls(summary, episode)
    summary.num_best += episode.best_of > 1
    summary.num_uncompared += sum(
        differ_in_end(episode, siblings) for siblings in decisions(episode).values()
    )
    for role in config.roles:
        success = episode.sampled_success(role)
        if success is not None:
            summary.successes[role].append(success)
        if episode.best_of > 1:
            summary.best_successes[role] += episode.success.get(role, False)
        reward = role_reward(episode, role, config.reward)
        if isinstance(reward, Scored):
            summary.rewards[role].append(reward.value)


def _add_blocked_calls(summary: Summary, episode: Episode) -> None:
    for step in episode.steps:
        blocked = from_metrics(step.metrics)
        if blocked is not None:
            for role in {episode.turns[turn].role for turn in step.turns}:
                summary.blocked_calls.setdefault(role, Counter()).update(blocked)
