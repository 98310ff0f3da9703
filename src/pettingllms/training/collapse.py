"""Collapse guard: pauses a run, or warns, when a policy stays past a bound for several steps.

A collapse is silent: equal siblings get equal rewards, so advantages and losses are 0, nothing
fails, and the win rate of self-play stays at one half. One bad step is no sign, so the guard counts
the steps in a row in which a policy is past a bound. The counts are part of the checkpoint, so a
killed run pauses at the same step. A pause resets them, or the run would pause again at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.config.training import GuardConfig
from pettingllms.runs.checkpoint import checkpoint_name
from pettingllms.runs.metrics import Metrics, reply_shares
from pettingllms.training.component import Component, TrainStep
from pettingllms.types import Episode

ANCHOR, BEST = "anchor_", "best/"
MAX_SHOWN = 60
"""Characters of a reply that a message shows."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A bound that a policy exceeded in a step."""

    policy: str
    metric: str
    observed: str
    why: str
    remedy: str
    key: str
    """Setting of [guard] that turns the bound off."""


class CollapseGuard(Component):
    """Counts how long each policy is past each bound of [guard]."""

    name = "guard"

    def __init__(self, config: GuardConfig, roles: Mapping[str, str], run: Path) -> None:
        self._config = config
        self._roles = roles
        self._run = run
        self._counts: dict[str, float] = {}
        """Steps in a row, by policy and metric."""
        self._best: dict[str, float] = {}
        """Best success against each anchor, by policy and metric."""

    async def after_step(self, step: TrainStep) -> None:
        signs = self.observe(step.metrics)
        if self.is_healthy and not signs:
            step.last_good = step.last_saved
        if not signs:
            return
        description = self.describe(signs, step.episodes)
        if self._config.action == "warn":
            step.callback.on_message(f"ALARM after step {step.number}:\n{description}")
        else:
            step.pause = (
                f"after step {step.number}, a policy has collapsed\n{description}\n"
                f"{how_to_continue(str(self._run), step.last_good)}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {**self._counts, **{BEST + key: value for key, value in self._best.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._counts = {key: n for key, n in state.items() if not key.startswith(BEST)}
        self._best = {key.removeprefix(BEST): n for key, n in state.items() if key.startswith(BEST)}

    @property
    def is_healthy(self) -> bool:
        """Whether no policy is past any bound."""
        return not any(self._counts.values())

    def observe(self, metrics: Metrics) -> list[Sign]:
        """Count one step; return the signs that have lasted too long, and reset their counts."""
        found = []
        for policy, numbers in metrics["policies"].items():
            signs = {sign.metric: sign for sign in self._signs(policy, numbers, metrics)}
            for metric in self._measured(numbers):
                key = f"{policy}/{metric}"
                self._counts[key] = self._counts.get(key, 0) + 1 if metric in signs else 0
                if self._counts[key] >= self._patience(metric):
                    found.append(signs[metric])
                    self._counts[key] = 0
                    self._best.pop(key, None)
        return found

    def describe(self, signs: Sequence[Sign], episodes: Sequence[Episode]) -> str:
        """What was observed of each policy, why it is suspicious, and what helps."""
        lines = []
        for sign in signs:
            unit = "evaluations" if sign.metric.startswith(ANCHOR) else "steps"
            duration = f"{self._patience(sign.metric)} {unit}"
            lines += [
                f"  '{sign.policy}', {duration} in a row: {sign.observed}.",
                f"    Most frequent reply: {_most_frequent(episodes, sign.policy)}.",
                f"    Why this is suspicious: {sign.why}.",
                f"    What helps: {sign.remedy}. To allow it, set {sign.key} under [guard].",
            ]
        return "\n".join(lines)

    def _measured(self, numbers: Mapping[str, float]) -> list[str]:
        """The metrics of this step that have a bound; the counts of other metrics do not change."""
        known = {"distinct_replies", "sampler_entropy", "repetition"}
        known |= {ANCHOR + name for name in self._config.anchors}
        if numbers.get("distinct_prompts", 0) < self._config.min_prompts:
            known.discard("distinct_replies")
        return [metric for metric in numbers if metric in known]

    def _patience(self, metric: str) -> int:
        guard = self._config
        return guard.anchor_patience if metric.startswith(ANCHOR) else guard.patience

    def _signs(self, policy: str, numbers: Mapping[str, float], metrics: Metrics) -> Iterator[Sign]:
        guard = self._config
        replies, entropy = numbers.get("distinct_replies"), numbers.get("sampler_entropy")
        wins = self._wins(policy, metrics)
        if replies is not None and replies < guard.min_replies and not wins:
            yield Sign(
                policy,
                "distinct_replies",
                f"{replies:.3f} different replies over {numbers['distinct_prompts']:.0f} different "
                f"prompts (guard.min_replies = {guard.min_replies:g})",
                "it gives the same reply to every prompt, so siblings get equal rewards and "
                "advantages are 0",
                f"lower policies.{policy}.lr, raise loss.entropy_coef, or check whether the reward "
                "of this reply is too high",
                "min_replies = 1",
            )
        if entropy is not None and entropy < guard.min_entropy and not wins:
            yield Sign(
                policy,
                "sampler_entropy",
                f"entropy of {entropy:.2g} per token (guard.min_entropy = {guard.min_entropy:g})",
                "it no longer explores, so it cannot find better replies",
                f"lower policies.{policy}.lr, or raise loss.entropy_coef",
                "min_entropy = 0",
            )
        if numbers.get("repetition", 0) > guard.max_repetition:
            yield Sign(
                policy,
                "repetition",
                f"{numbers['repetition']:.0%} of the 4-grams in its replies are repeated "
                f"(guard.max_repetition = {guard.max_repetition:g})",
                "its replies repeat themselves until they reach the token limit",
                f"lower policies.{policy}.lr, raise loss.kl_coef, or reward long replies less",
                "max_repetition = 1",
            )
        yield from self._drops(policy, numbers)

    def _drops(self, policy: str, numbers: Mapping[str, float]) -> Iterator[Sign]:
        for name in self._config.anchors:
            metric = ANCHOR + name
            if metric not in numbers:
                continue
            now, key = numbers[metric], f"{policy}/{metric}"
            best = self._best[key] = max(now, self._best.get(key, now))
            if now < best - self._config.max_anchor_drop:
                yield Sign(
                    policy,
                    metric,
                    f"success against '{name}' of {now:.0%}, after {best:.0%} "
                    f"(guard.max_anchor_drop = {self._config.max_anchor_drop:g})",
                    "it gets worse against a fixed player, whatever its win rate in self-play",
                    f"lower policies.{policy}.lr, or set learner.decay_steps or decay_tokens",
                    "max_anchor_drop = 1",
                )

    def _wins(self, policy: str, metrics: Metrics) -> bool:
        """Whether all roles of the policy succeed so often that one fixed reply may be right."""
        roles = [role for role, name in self._roles.items() if name == policy]
        success = [metrics["roles"][role].get("success", 0.0) for role in roles]
        return bool(success) and min(success) >= self._config.enough_success


def how_to_continue(run: str, good: int) -> str:
    """Instructions for a run that was paused; `good` is the step of its last good checkpoint."""
    back = (
        f"  go back: `pettingllms resume {run} --step {good}`; checkpoints/"
        f"{checkpoint_name(good)} is the last good checkpoint, and is kept"
        if good
        else "  there is no good checkpoint to go back to; start a new run with other settings"
    )
    return (
        f"The run is saved. Look at its last episodes in {run}/episodes, change {run}/config.toml, "
        f"then\n{back}\n  continue from here: `pettingllms resume {run}`"
    )


def _most_frequent(episodes: Sequence[Episode], policy: str) -> str:
    turns = [turn for episode in episodes for turn in episode.turns if turn.policy == policy]
    written = [turn for turn in turns if turn.policy_version is not None]
    shares, _ = reply_shares(written)
    if not shares:
        return "none in this step"
    key = max(shares, key=lambda key: shares[key])
    text = next(turn for turn in written if turn.reply_key() == key).text.strip()
    shown = repr(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")
    return f"{shown} ({shares[key]:.0%})"
